// SPDX-License-Identifier: Apache-2.0
// Grouped GEMM against gemm of each group, to the bit: empty groups, one row, all rows in one group, odd sizes, every
// form and dtype. Parts and columns of wider matrices against separate calls: 16-bit sums of parts within a rounding.
// Refused arguments.
#include "kernels/grouped_gemm.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/gemm.hpp"
#include "reference.hpp"

namespace tessera::kernels {
namespace {

const std::vector<std::vector<std::int32_t>> divisions = {
    {0, 0, 1, 1, 6, 37}, {0, 37, 37, 37, 37, 37}, {0, 0, 0, 0, 0, 37}, {0, 7, 14, 21, 28, 37}, {0, 0, 0, 0, 0, 0}};

/// Matrices of a list, two views apart, as in a module's parameters.
template <class T>
class Matrices {
 public:
  Matrices(std::int64_t groups, const Shape& shape, std::uint64_t seed)
      : numbers_(random_vector<T>(groups * shape.numel(), seed)) {
    for (std::int64_t e = 0; e < groups; ++e) {
      views_.emplace_back(numbers_.data() + e * shape.numel(), shape);
      views_.emplace_back();
    }
  }
  [[nodiscard]] GroupMatrices list() const { return {views_.data(), 2}; }
  [[nodiscard]] const std::vector<T>& numbers() const { return numbers_; }

 private:
  std::vector<T> numbers_;
  std::vector<TensorView> views_;
};

template <class T>
void expect_same(const std::vector<T>& a, const std::vector<T>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_TRUE(a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
void expect_rows_as_gemm(std::vector<std::int32_t> offsets, std::int64_t k, std::int64_t n, bool trans_b, bool add,
                         double alpha = 1) {
  const std::int64_t rows = offsets.back(), groups = static_cast<std::int64_t>(offsets.size()) - 1;
  auto a = random_vector<T>(rows * k, 1), c = random_vector<T>(rows * n, 2), expected = c;
  a.reserve(1), c.reserve(1), expected.reserve(1);
  const Matrices<T> b(groups, trans_b ? Shape{n, k} : Shape{k, n}, 3);
  grouped_gemm({.offsets = view(offsets),
                .a = view(a, {rows, k}),
                .b = b.list(),
                .c = view(c, {rows, n}),
                .trans_b = trans_b,
                .alpha = alpha,
                .add = add},
               host_stream);
  for (std::int64_t e = 0; e < groups; ++e) {
    const std::int64_t first = offsets[static_cast<std::size_t>(e)],
                       count = offsets[static_cast<std::size_t>(e + 1)] - first;
    gemm({.a = view(a, {rows, k}).rows(first, count),
          .b = b.list()[e],
          .c = view(expected, {rows, n}).rows(first, count),
          .trans_b = trans_b,
          .alpha = alpha,
          .beta = add ? 1.0 : 0.0},
         host_stream);
  }
  expect_same(c, expected);
}

template <class T, class C>
void expect_gradients_as_gemm(std::vector<std::int32_t> offsets, std::int64_t m, std::int64_t n, bool add,
                              double alpha = 1) {
  const std::int64_t rows = offsets.back(), groups = static_cast<std::int64_t>(offsets.size()) - 1;
  auto a = random_vector<T>(rows * m, 1), b = random_vector<T>(rows * n, 2);
  a.reserve(1), b.reserve(1);
  const Matrices<C> c(groups, {m, n}, 3), expected(groups, {m, n}, 3);
  grouped_gemm_gradient({.offsets = view(offsets),
                         .a = view(a, {rows, m}),
                         .b = view(b, {rows, n}),
                         .c = c.list(),
                         .alpha = alpha,
                         .add = add},
                        host_stream);
  for (std::int64_t e = 0; e < groups; ++e) {
    const std::int64_t first = offsets[static_cast<std::size_t>(e)],
                       count = offsets[static_cast<std::size_t>(e + 1)] - first;
    gemm({.a = view(a, {rows, m}).rows(first, count),
          .b = view(b, {rows, n}).rows(first, count),
          .c = expected.list()[e],
          .trans_a = true,
          .alpha = alpha,
          .beta = add ? 1.0 : 0.0},
         host_stream);
    if (count > 0 || add) continue;
    for (std::int64_t i = 0; i < m * n; ++i)
      EXPECT_EQ(static_cast<double>(c.list()[e].template as<C>()[i]), 0.0) << "group " << e;
  }
  expect_same(c.numbers(), expected.numbers());
}

template <class T>
class GroupedGemm : public testing::Test {};
using Types = testing::Types<float, double, bf16, f16>;
TYPED_TEST_SUITE(GroupedGemm, Types);

TYPED_TEST(GroupedGemm, IsGemmOfEachGroup) {
  for (const int num : {1, 2}) {
    const Setting setting(num);
    for (const auto& offsets : divisions)
      for (const auto& [k, n] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {13, 7}, {24, 40}})
        for (const bool add : {false, true}) {
          for (const bool trans_b : {false, true}) expect_rows_as_gemm<TypeParam>(offsets, k, n, trans_b, add);
          expect_gradients_as_gemm<TypeParam, TypeParam>(offsets, k, n, add);
          if constexpr (is_half<TypeParam>) expect_gradients_as_gemm<TypeParam, float>(offsets, k, n, add);
        }
  }
}

TYPED_TEST(GroupedGemm, TimesAlpha) {
  for (const auto& offsets : divisions)
    for (const bool add : {false, true}) {
      expect_rows_as_gemm<TypeParam>(offsets, 13, 7, /*trans_b=*/true, add, 1.5);
      expect_gradients_as_gemm<TypeParam, TypeParam>(offsets, 13, 7, add, 1.5);
      if constexpr (is_half<TypeParam>) expect_gradients_as_gemm<TypeParam, float>(offsets, 13, 7, add, 1.5);
    }
}

/// Two matrices for each group that lie one after the other, as gate and up of an expert, and a third, as down, which
/// is not multiplied.
template <class T>
struct Pairs {
  Pairs(std::int64_t groups, std::int64_t rows, std::int64_t columns, std::uint64_t seed)
      : numbers(random_vector<T>(3 * groups * rows * columns, seed)) {
    for (std::int64_t i = 0; i < 3 * groups; ++i)
      views.emplace_back(numbers.data() + i * rows * columns, Shape{rows, columns});
  }
  [[nodiscard]] GroupMatrices joined() const { return {views.data(), 3, 2 * views[0].shape[0]}; }
  [[nodiscard]] GroupMatrices part(std::size_t i) const { return {&views[i], 3}; }
  std::vector<T> numbers;
  std::vector<TensorView> views;
};

/// Columns [first, first + count) of an (R, C) matrix.
template <class T>
TensorView columns_of(std::vector<T>& matrix, std::int64_t rows, std::int64_t first, std::int64_t count) {
  return {matrix.data() + first, Shape{rows, count}};
}

// x times both matrices is written to columns 2 to 2 + 2n of a wider matrix, and read from there by both backward
// passes: once with the pairs as one matrix, once with each by itself.
template <class T>
void expect_parts_as_separate(std::int64_t k, std::int64_t n) {
  std::vector<std::int32_t> offsets{0, 0, 1, 6, 37};
  const std::int64_t groups = 4, rows = 37, wide = 2 * n + 5;
  auto x = random_vector<T>(rows * k, 1), y = random_vector<T>(rows * wide, 2), y_apart = y, dx = x, dx_apart = x;
  const Pairs<T> weights(groups, n, k, 3), gradients(groups, n, k, 4), gradients_apart(groups, n, k, 4);
  const GemmParts sizes{.count = 2, .sizes = {n, n}};
  const auto parts = [&](GemmParts::Of of) {
    GemmParts result = sizes;
    result.of = of;
    return result;
  };
  const TensorView both = columns_of(y, rows, 2, 2 * n);
  grouped_gemm({.offsets = view(offsets),
                .a = view(x, {rows, k}),
                .b = weights.joined(),
                .c = both,
                .trans_b = true,
                .stride_c = wide,
                .parts = parts(GemmParts::Of::n)},
               host_stream);
  grouped_gemm_gradient({.offsets = view(offsets),
                         .a = both,
                         .b = view(x, {rows, k}),
                         .c = gradients.joined(),
                         .add = true,
                         .stride_a = wide,
                         .parts = parts(GemmParts::Of::m)},
                        host_stream);
  grouped_gemm({.offsets = view(offsets),
                .a = both,
                .b = weights.joined(),
                .c = view(dx, {rows, k}),
                .stride_a = wide,
                .parts = parts(GemmParts::Of::k)},
               host_stream);
  for (const std::size_t i : {0, 1}) {
    const TensorView one = columns_of(y_apart, rows, 2 + static_cast<std::int64_t>(i) * n, n);
    grouped_gemm({.offsets = view(offsets),
                  .a = view(x, {rows, k}),
                  .b = weights.part(i),
                  .c = one,
                  .trans_b = true,
                  .stride_c = wide},
                 host_stream);
    grouped_gemm_gradient({.offsets = view(offsets),
                           .a = one,
                           .b = view(x, {rows, k}),
                           .c = gradients_apart.part(i),
                           .add = true,
                           .stride_a = wide},
                          host_stream);
    grouped_gemm({.offsets = view(offsets),
                  .a = one,
                  .b = weights.part(i),
                  .c = view(dx_apart, {rows, k}),
                  .add = i > 0,
                  .stride_a = wide},
                 host_stream);
  }
  // 16-bit: of the largest number; the sum of both parts is rounded once, or after each part.
  constexpr double tolerance = std::is_same_v<T, bf16> ? 1.0 / 128 : std::is_same_v<T, f16> ? 1.0 / 1024 : 0;
  const auto expect_near = [&](const std::vector<T>& a, const std::vector<T>& b) {
    double largest = 0;
    for (const T number : b) largest = std::max(largest, std::abs(static_cast<double>(number)));
    for (std::size_t i = 0; i < a.size(); ++i)
      ASSERT_NEAR(static_cast<double>(a[i]), static_cast<double>(b[i]), tolerance * largest) << i;
  };
  expect_near(y, y_apart);
  expect_near(gradients.numbers, gradients_apart.numbers);
  expect_near(dx, dx_apart);
}

TYPED_TEST(GroupedGemm, PartsAndColumnsOfWiderMatrices) {
  for (const auto& [k, n] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {13, 7}, {24, 40}})
    expect_parts_as_separate<TypeParam>(k, n);
}

TEST(GroupedGemm, GradientsOfSomeGroups) {
  std::vector<std::int32_t> offsets{0, 3, 3, 8};
  auto a = random_vector<double>(8 * 5, 1), b = random_vector<double>(8 * 4, 2);
  const auto before = random_vector<double>(3 * 20, 3);
  auto all = before, some = before;
  const auto run = [&](std::vector<double>& c, std::int64_t skipped) {
    std::vector<TensorView> views;
    for (std::int64_t e = 0; e < 3; ++e)
      views.push_back(e == skipped ? TensorView{} : TensorView{c.data() + e * 20, Shape{5, 4}});
    grouped_gemm_gradient(
        {.offsets = view(offsets), .a = view(a, {8, 5}), .b = view(b, {8, 4}), .c = {views.data(), 1}}, host_stream);
  };
  run(all, -1);
  for (std::int64_t skipped = 0; skipped < 3; ++skipped) {
    some = before;
    run(some, skipped);
    for (std::int64_t i = 0; i < 60; ++i) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_EQ(some[at], i / 20 == skipped ? before[at] : all[at]) << skipped;
    }
  }
}

TEST(GroupedGemmRefuses, ShapesAndGroupsThatDoNotFit) {
  std::vector<float> a(12), c(9);
  std::vector<std::int32_t> offsets = {0, 1, 3}, short_of_rows = {0, 1, 2};
  const Matrices<float> b(2, {4, 3}, 1), wide(2, {4, 5}, 1);
  const auto run = [&](std::vector<std::int32_t>& groups, const Matrices<float>& matrices) {
    grouped_gemm({.offsets = view(groups), .a = view(a, {3, 4}), .b = matrices.list(), .c = view(c, {3, 3})},
                 host_stream);
  };
  EXPECT_NO_THROW(run(offsets, b));
  EXPECT_THROW(run(short_of_rows, b), std::logic_error);
  EXPECT_THROW(run(offsets, wide), std::logic_error);
  EXPECT_THROW(grouped_gemm({.offsets = view(offsets),
                             .a = view(a, {3, 4}),
                             .b = b.list(),
                             .c = view(c, {3, 3}),
                             .stride_c = 2},  // rows would overlap
                            host_stream),
               std::logic_error);
}

TEST(GroupedGemmRefuses, ListsOfMatricesOfUnequalDistance) {
  std::vector<float> memory(64);
  const auto at = [&](std::size_t first) { return TensorView(memory.data() + first, Shape{2, 3}); };
  const std::vector<TensorView> even = {at(0), at(20), at(40)}, odd = {at(0), at(20), at(41)};
  EXPECT_EQ(group_stride({even.data(), 1}, 3), 20);
  EXPECT_EQ(group_stride({even.data(), 2}, 2), 40);
  EXPECT_EQ(group_stride({even.data(), 1}, 1), 0);
  EXPECT_THROW((void)group_stride({odd.data(), 1}, 3), std::logic_error);
}

}  // namespace
}  // namespace tessera::kernels
