// SPDX-License-Identifier: Apache-2.0
// Biases of groups of rows against sums written out, with groups without rows, for any number of threads.
#include "kernels/group_bias.hpp"

#include "reference.hpp"

namespace tessera::kernels {
namespace {

constexpr std::int64_t rows = 41, columns = 70, groups = 4;

/// Rows of four groups, the second without any, and the slot of each row.
struct Problem {
  std::vector<std::int32_t> offsets = {0, 9, 9, 40, rows}, slots, rows_of;
  std::vector<double> bias = random_vector<double>(groups * columns, 1), x = random_vector<double>(rows * columns, 2),
                      weights = random_vector<double>(rows, 3);
  Problem() {
    for (std::int32_t i = 0; i < rows; ++i) slots.push_back(static_cast<std::int32_t>(i * 7 % rows));
    rows_of.resize(slots.size());
  }
  [[nodiscard]] Dispatch dispatch() { return {view(slots), view(rows_of), view(offsets)}; }
  [[nodiscard]] std::size_t group(std::int64_t row) const { return row < 9 ? 0 : row < 40 ? 2 : 3; }
  [[nodiscard]] std::size_t slot(std::int64_t row) const {
    return static_cast<std::size_t>(slots[static_cast<std::size_t>(row)]);
  }
};

template <class F>
void for_elements(const F& f) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      f(r, static_cast<std::size_t>(c), static_cast<std::size_t>(r * columns + c));
}

TEST(GroupBias, IsAddedToTheRowsOfItsGroup) {
  Problem p;
  auto y = p.x, one = p.x;
  std::vector<double> of_all(p.bias.begin(), p.bias.begin() + columns);
  for (const int threads : {1, 3}) {
    const Setting setting(threads);
    y = one = p.x;
    add_group_bias({view(p.offsets), view(p.bias, {groups, columns}), view(y, {rows, columns})}, host_stream);
    add_group_bias({{}, view(of_all, {1, columns}), view(one, {rows, columns})}, host_stream);
    for_elements([&](std::int64_t r, std::size_t c, std::size_t i) {
      ASSERT_EQ(y[i], p.x[i] + p.bias[p.group(r) * columns + c]);
      ASSERT_EQ(one[i], p.x[i] + p.bias[c]);
    });
  }
}

TEST(GroupBias, OfSixteenBitsIsAddedToFp32) {
  std::vector<bf16> bias = {bf16(0.5F), bf16(-3.0F)};
  std::vector<float> y = {1.001F, 2, 3, 4};
  add_group_bias({{}, {bias.data(), DType::bf16, Shape{1, 2}}, view(y, {2, 2})}, host_stream);
  EXPECT_EQ(y, (std::vector<float>{1.501F, -1, 3.5F, 1}));
}

TEST(GroupBias, GradientsAreSumsOfWeightedRows) {
  Problem p;
  for (const int threads : {1, 3})
    for (const bool weighted : {false, true})
      for (const bool add : {false, true}) {
        const Setting setting(threads);
        std::vector<double> dbias(p.bias.size(), 0.25), expected(p.bias.size(), add ? 0.25 : 0);
        for_elements([&](std::int64_t r, std::size_t c, std::size_t i) {
          expected[p.group(r) * columns + c] += (weighted ? p.weights[p.slot(r)] : 1) * p.x[i];
        });
        group_bias_gradient({.dispatch = p.dispatch(),
                             .dy = view(p.x, {rows, columns}),
                             .weights = weighted ? view(p.weights) : TensorView{},
                             .dbias = view(dbias, {groups, columns}),
                             .accumulate = add},
                            host_stream);
        EXPECT_LE(relative_error(dbias, expected), 1e-15);
        EXPECT_EQ(dbias[columns], add ? 0.25 : 0);  // of the group without rows
      }
}

TEST(GroupBias, AddsToTheGradientsOfTheWeights) {
  Problem p;
  std::vector<double> dweights(rows, 0.5), expected(rows, 0.5);
  for_elements([&](std::int64_t r, std::size_t c, std::size_t i) {
    expected[p.slot(r)] += p.bias[p.group(r) * columns + c] * p.x[i];
  });
  add_group_bias_weights({p.dispatch(), view(p.bias, {groups, columns}), view(p.x, {rows, columns}), view(dweights)},
                         host_stream);
  EXPECT_LE(relative_error(dweights, expected), 1e-14);
}

}  // namespace
}  // namespace tessera::kernels
