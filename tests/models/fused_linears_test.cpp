// SPDX-License-Identifier: Apache-2.0
// Several Linears of one input: one GEMM in each direction where their parameters are adjacent, else one each, with the
// same bits on the host in fp32; which parameters come first.
#include "models/fused_linears.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "gemm_counter.hpp"
#include "models/module.hpp"
#include "runtime/base/rng.hpp"

namespace tessera::test::fused_linears {
namespace {

using models::FusedLinears;
using models::Linear;
using models::LinearSpec;
using models::ParamList;

constexpr std::int64_t rows = 37, in = 24;
const std::int64_t outs[] = {40, 16, 16};
constexpr std::int64_t out = 72;

/// Parameters and gradients of q, k and v, adjacent or `gap` elements apart.
template <class T>
struct Memory {
  Memory(const std::vector<ParamSpec>& specs, const std::vector<int>& order, std::size_t gap)
      : data(static_cast<std::size_t>(out * (in + 1)) + order.size() * gap), gradients(data.size(), T(9.0F)) {
    std::size_t at = 0;
    for (const int i : order) {
      const ParamSpec& spec = specs[static_cast<std::size_t>(i)];
      const auto count = static_cast<std::size_t>(spec.numel());
      for (std::size_t k = 0; k < count; ++k)
        data[at + k] = T(static_cast<float>(normal(static_cast<std::uint64_t>(i), k)));
      params.emplace_back(data.data() + at, spec.shape);
      grads.emplace_back(gradients.data() + at, spec.shape);
      at += count + gap;
    }
  }
  std::vector<T> data, gradients;
  std::vector<TensorView> params, grads;
};

template <class T>
struct Results {
  std::vector<T> y, dx;
  std::vector<std::vector<T>> grads;
  int gemms[2] = {};  // calls of forward, of backward
};

template <class T>
void expect_near(const std::vector<T>& a, const std::vector<T>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto truth = static_cast<double>(b[i]);
    ASSERT_NEAR(static_cast<double>(a[i]), truth, (1 + std::abs(truth)) / 32) << i;
  }
}

/// To the bit; of 16-bit floats y and dx, which the host may compute as one GEMM, to a few roundings.
template <class T>
void expect_equal(const Results<T>& a, const Results<T>& b) {
  EXPECT_EQ(a.grads, b.grads);
  if constexpr (sizeof(T) == 2) {
    expect_near(a.y, b.y);
    expect_near(a.dx, b.dx);
  } else {
    EXPECT_EQ(a.y, b.y);
    EXPECT_EQ(a.dx, b.dx);
  }
}

template <class T>
std::vector<T> numbers(std::int64_t n, std::uint64_t key) {
  std::vector<T> v(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = T(static_cast<float>(normal(key, i)));
  return v;
}

struct Given {
  bool biased = false, accumulate = false, freezes_k = false;
  std::size_t gap = 0;
};

template <class T>
Results<T> results(const Given& given) {
  std::vector<ParamSpec> specs;
  ParamList list(specs);
  std::vector<LinearSpec> linears;
  for (const std::int64_t each : outs)
    linears.push_back({.prefix = "p" + std::to_string(linears.size()), .in = in, .out = each, .bias = given.biased});
  const FusedLinears fused(linears, list);
  EXPECT_EQ(fused.out(), out);
  Memory<T> memory(specs, list.indices(), given.gap);
  if (given.freezes_k) memory.grads[1] = {};
  const std::vector<std::uint8_t> accumulate(specs.size(), given.accumulate ? 1 : 0);
  auto x = numbers<T>(rows * in, 100), dy = numbers<T>(rows * out, 101);
  Results<T> r;
  r.y.resize(dy.size());
  r.dx.resize(x.size());
  (void)take_gemm_calls();
  fused.forward({.params = memory.params, .x = {x.data(), {rows, in}}, .y = {r.y.data(), {rows, out}}});
  r.gemms[0] = take_gemm_calls();
  fused.backward({.params = memory.params,
                  .grads = {memory.grads, accumulate},
                  .x = {x.data(), {rows, in}},
                  .dy = {dy.data(), {rows, out}},
                  .dx = {r.dx.data(), {rows, in}}});
  r.gemms[1] = take_gemm_calls();
  for (const TensorView& grad : memory.grads)
    r.grads.emplace_back(grad ? std::vector<T>(grad.as<T>(), grad.as<T>() + grad.numel()) : std::vector<T>{});
  return r;
}

template <class T>
class Fused : public testing::Test {};
using Types = testing::Types<float, double, bf16>;
TYPED_TEST_SUITE(Fused, Types);

TYPED_TEST(Fused, OneGemmWhereParametersAreAdjacentWithTheBitsOfSeveral) {
  for (const bool biased : {false, true})
    for (const bool accumulate : {false, true}) {
      const auto joined = results<TypeParam>({.biased = biased, .accumulate = accumulate}),
                 apart = results<TypeParam>({.biased = biased, .accumulate = accumulate, .gap = 3});
      expect_equal(joined, apart);
      EXPECT_EQ(joined.gemms[0], 1);
      EXPECT_EQ(joined.gemms[1], 2);  // of the weights, of the input
      EXPECT_EQ(apart.gemms[0], 3);
      EXPECT_EQ(apart.gemms[1], 6);
    }
}

TYPED_TEST(Fused, FrozenPartsHaveNoGradient) {
  const auto all = results<TypeParam>({.biased = true}), some = results<TypeParam>({.biased = true, .freezes_k = true});
  EXPECT_EQ(some.gemms[1], 3);  // two weights, and the input
  EXPECT_TRUE(some.grads[1].empty());
  for (const std::size_t i : {0, 2, 3, 4, 5}) EXPECT_EQ(some.grads[i], all.grads[i]);
  EXPECT_EQ(some.dx, all.dx);
}

TEST(FusedLinears, WeightsComeFirstInTheModuleAndKeepTheirPlaceInTheModel) {
  const models::Model model = models::make(
      R"({"model_type": "qwen2", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6, "num_hidden_layers": 1,
  "num_attention_heads": 3, "num_key_value_heads": 1, "intermediate_size": 7})",
      "test");
  std::vector<std::string> by_module, by_model;
  for (const int i : model.modules[1]->params()) by_module.push_back(model.params[static_cast<std::size_t>(i)].name);
  const auto ends = [](const std::string& name, const char* end) { return name.ends_with(end); };
  ASSERT_GE(by_module.size(), 7U);
  const char* const order[] = {"q_proj.weight", "k_proj.weight", "v_proj.weight",
                               "q_proj.bias",   "k_proj.bias",   "v_proj.bias"};
  for (std::size_t i = 0; i < std::size(order); ++i) EXPECT_TRUE(ends(by_module[i + 1], order[i])) << by_module[i + 1];
  for (std::size_t p = 0; p + 1 < model.params.size(); ++p)
    if (ends(model.params[p].name, "q_proj.weight")) { EXPECT_TRUE(ends(model.params[p + 1].name, "q_proj.bias")); }
}

}  // namespace
}  // namespace tessera::test::fused_linears
