// SPDX-License-Identifier: Apache-2.0
// Two Linears of the rows of groups, as an expert's gate and up: one grouped GEMM in each direction where a group's
// weights are adjacent, else one each, with the same bits on the host in fp32.
#include "models/grouped_linear.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "gemm_counter.hpp"
#include "runtime/base/rng.hpp"

namespace tessera::test::grouped_linear {
namespace {

using models::GroupedLinear;
using models::LinearSpec;
using models::ParamList;

constexpr std::int64_t groups = 3, num_rows = 29, in = 10, part = 14, out = 2 * part;
const std::vector<std::int32_t> offsets = {0, 12, 12, 29};

template <class T>
std::vector<T> numbers(std::int64_t n, std::uint64_t key) {
  std::vector<T> v(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = T(static_cast<float>(normal(key, i)));
  return v;
}

struct Given {
  bool accumulate = false, freezes_up = false;
  std::int64_t gap = 0;  // elements between parameters
};

template <class T>
struct Results {
  std::vector<T> y, dx;
  std::vector<std::vector<T>> grads;
  int gemms[3] = {};  // of forward, of the weights' gradients, of the input's
};

template <class T>
Results<T> results(const Given& given) {
  std::vector<ParamSpec> specs;
  ParamList list(specs);
  GroupedLinear linear;
  for (std::int64_t e = 0; e < groups; ++e) {
    const std::string prefix = "e" + std::to_string(e);
    linear.add({{.prefix = prefix + ".gate", .in = in, .out = part}, {.prefix = prefix + ".up", .in = in, .out = part}},
               list);
    list.add(models::weight_param({.prefix = prefix + ".down", .in = part, .out = in}));
  }
  EXPECT_EQ(linear.out(), out);

  constexpr std::int64_t each = in * part, num_params = 3 * groups;
  const std::int64_t step = each + given.gap;
  auto memory = numbers<T>(num_params * step, 1);
  std::vector<T> gradients(memory.size(), T(9.0F));
  std::vector<TensorView> params, grads;
  for (std::int64_t i = 0; i < num_params; ++i) {
    const Shape shape = specs[static_cast<std::size_t>(i)].shape;
    for (std::int64_t k = 0; k < each; ++k)
      memory[static_cast<std::size_t>(i * step + k)] =
          T(static_cast<float>(normal(1, static_cast<std::uint64_t>(i * each + k))));
    params.emplace_back(memory.data() + i * step, shape);
    grads.emplace_back(gradients.data() + i * step, shape);
    if (i % 3 == 2 || (i % 3 == 1 && given.freezes_up)) grads.back() = {};
  }

  const std::vector<std::uint8_t> accumulate(specs.size(), given.accumulate ? 1 : 0);
  const auto x = numbers<T>(num_rows * in, 100), dy = numbers<T>(num_rows * out, 101);
  Results<T> r;
  r.y.resize(dy.size());
  r.dx.resize(x.size());
  GroupedLinear::Args args{.params = params,
                           .grads = {grads, accumulate},
                           .offsets = {offsets.data(), {groups + 1}},
                           .x = {x.data(), {num_rows, in}},
                           .y = {r.y.data(), {num_rows, out}}};
  (void)take_gemm_calls();
  linear.forward(args);
  r.gemms[0] = take_gemm_calls();
  args.y = {dy.data(), {num_rows, out}};
  linear.backward_params(args);
  r.gemms[1] = take_gemm_calls();
  args.x = {r.dx.data(), {num_rows, in}};
  linear.backward_input(args);
  r.gemms[2] = take_gemm_calls();
  for (const TensorView& grad : grads)
    r.grads.emplace_back(grad ? std::vector<T>(grad.as<T>(), grad.as<T>() + grad.numel()) : std::vector<T>{});
  return r;
}

/// To the bit; of 16-bit floats to a few roundings.
template <class T>
void expect_equal(const std::vector<T>& a, const std::vector<T>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto truth = static_cast<double>(b[i]);
    ASSERT_NEAR(static_cast<double>(a[i]), truth, is_half<T> ? (1 + std::abs(truth)) / 32 : 0) << i;
  }
}

template <class T>
class GroupedLinears : public testing::Test {};
using Types = testing::Types<float, double, bf16>;
TYPED_TEST_SUITE(GroupedLinears, Types);

TYPED_TEST(GroupedLinears, OneGemmAGroupWhereItsWeightsAreAdjacent) {
  for (const bool accumulate : {false, true}) {
    const auto joined = results<TypeParam>({.accumulate = accumulate}),
               apart = results<TypeParam>({.accumulate = accumulate, .gap = 3});
    expect_equal(joined.y, apart.y);
    expect_equal(joined.dx, apart.dx);
    EXPECT_EQ(joined.grads, apart.grads);
    for (const int gemms : joined.gemms) EXPECT_EQ(gemms, groups);
    for (const int gemms : apart.gemms) EXPECT_EQ(gemms, 2 * groups);
  }
}

TYPED_TEST(GroupedLinears, FrozenPartsHaveNoGradient) {
  const auto all = results<TypeParam>({}), some = results<TypeParam>({.freezes_up = true});
  EXPECT_EQ(some.gemms[1], groups);
  EXPECT_EQ(some.y, all.y);
  EXPECT_EQ(some.dx, all.dx);
  for (std::size_t i = 0; i < all.grads.size(); ++i) {
    if (i % 3 == 0) EXPECT_EQ(some.grads[i], all.grads[i]) << i;
    else EXPECT_TRUE(some.grads[i].empty()) << i;
  }
}

}  // namespace
}  // namespace tessera::test::grouped_linear
