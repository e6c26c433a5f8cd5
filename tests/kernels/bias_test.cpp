// SPDX-License-Identifier: Apache-2.0
// Column sums and addition against loops in double; order of rows; threads.
#include "kernels/bias.hpp"

#include "reference.hpp"

namespace tessera::kernels {
namespace {

template <class T>
void matches(std::int64_t rows, std::int64_t columns, double tolerance) {
  auto dy = random_vector<T>(rows * columns, 1), old = random_vector<T>(columns, 2);
  std::vector<double> sums(static_cast<std::size_t>(columns)), added(sums.size());
  for (std::size_t i = 0; i < dy.size(); ++i) sums[i % sums.size()] += static_cast<double>(dy[i]);
  for (std::size_t i = 0; i < sums.size(); ++i) added[i] = sums[i] + static_cast<double>(old[i]);
  std::vector<T> dbias(sums.size(), std::numeric_limits<T>::quiet_NaN());
  bias_backward({.dy = view(dy, {rows, columns}), .dbias = view(dbias)}, host_stream);
  EXPECT_LT(relative_error(dbias, sums), tolerance) << rows << " " << columns;
  dbias = old;
  bias_backward({.dy = view(dy, {rows, columns}), .dbias = view(dbias), .accumulate = true}, host_stream);
  EXPECT_LT(relative_error(dbias, added), tolerance) << rows << " " << columns;
}

TEST(Bias, SumsColumns) {
  for (const Isa set : instruction_sets())
    for (const int num : {1, 2, 3}) {
      const Setting setting(num, set);
      for (const std::int64_t rows : {1, 7, 9, 50})
        for (const std::int64_t columns : {1, 5, 131, 400}) {
          matches<float>(rows, columns, 3e-5);
          matches<double>(rows, columns, 1e-13);
        }
    }
}

TEST(Bias, RowsAreAddedInOrderEverywhere) {
  const std::int64_t rows = 61, columns = 203;
  auto dy = random_vector<float>(rows * columns, 5);
  std::vector<float> in_order(static_cast<std::size_t>(columns));
  for (std::size_t i = 0; i < dy.size(); ++i) in_order[i % in_order.size()] += dy[i];
  for (const Isa set : instruction_sets())
    for (const int num : {1, 2, 3}) {
      const Setting setting(num, set);
      std::vector<float> dbias(in_order.size());
      bias_backward({.dy = view(dy, {rows, columns}), .dbias = view(dbias)}, host_stream);
      EXPECT_EQ(dbias, in_order);
    }
}

TEST(Bias, Add) {
  for (const int num : {1, 3}) {
    const Setting setting(num);
    for (const std::int64_t n : {1, 9, 8192 * 2 + 5}) {
      auto x = random_vector<float>(n, 1), y = random_vector<float>(n, 2), sum = y;
      for (std::size_t i = 0; i < x.size(); ++i) sum[i] += x[i];
      add({.x = view(x), .y = view(y)}, host_stream);
      EXPECT_EQ(y, sum);
    }
  }
}

TEST(Bias, ShapesAreChecked) {
  std::vector<float> dy(6), dbias(2);
  EXPECT_THROW(bias_backward({.dy = view(dy, {2, 3}), .dbias = view(dbias)}, host_stream), std::logic_error);
  EXPECT_THROW(add({.x = view(dy), .y = view(dbias)}, host_stream), std::logic_error);
}

}  // namespace
}  // namespace tessera::kernels
