// SPDX-License-Identifier: Apache-2.0
// Dropout: the documented mask, whatever the split of the rows, the threads and the instruction set.
#include "kernels/dropout.hpp"

#include <algorithm>

#include "reference.hpp"

namespace tessera::kernels {
namespace {

/// p as the contract rounds it.
double rounded_p(double p) { return std::min(std::round(p * 65536), 65535.0) / 65536; }

/// By the contract's numbers.
bool is_kept(std::uint64_t key, std::int64_t row, std::int64_t column, std::int64_t columns, double p) {
  const auto words = philox(key, static_cast<std::uint64_t>(row * ((columns + 7) / 8) + column / 8));
  const std::uint32_t word = words[static_cast<std::size_t>(column % 8 / 2)];
  return (column % 2 == 0 ? word % 65536 : word / 65536) >= rounded_p(p) * 65536;
}

template <class T>
void follows_the_formula(std::int64_t rows, std::int64_t columns, double p) {
  const std::uint64_t key = 0x123456789abcdef;
  auto x = random_vector<T>(rows * columns, 5), base = random_vector<T>(rows * columns, 6);
  std::vector<T> y(x.size());
  auto sum = base;
  dropout({.x = view(x, {rows, columns}), .y = view(y, {rows, columns}), .p = p, .key = key, .first_row = 11},
          host_stream);
  dropout({.x = view(x, {rows, columns}),
           .y = view(sum, {rows, columns}),
           .p = p,
           .key = key,
           .first_row = 11,
           .accumulate = true},
          host_stream);
  for (std::int64_t n = 0; n < rows; ++n)
    for (std::int64_t c = 0; c < columns; ++c) {
      const auto i = static_cast<std::size_t>(n * columns + c);
      const double expected = is_kept(key, 11 + n, c, columns, p) ? static_cast<double>(x[i]) / (1 - rounded_p(p)) : 0;
      EXPECT_NEAR(static_cast<double>(y[i]), expected, 1e-6 * std::abs(expected)) << n << " " << c;
      EXPECT_NEAR(static_cast<double>(sum[i]), static_cast<double>(base[i]) + expected, 2e-6 * (1 + std::abs(expected)))
          << n << " " << c;
    }
}

/// 16-bit floats: computed in fp32, rounded once.
template <class T>
void rounds_once(std::int64_t columns, double p) {
  constexpr std::int64_t rows = 2;
  constexpr std::uint64_t key = 7;
  const auto x = random_vector<T>(rows * columns, 5), base = random_vector<T>(rows * columns, 6);
  auto in = x, y = x, sum = base;
  const TensorView from = view(in, {rows, columns});
  dropout({.x = from, .y = view(y, {rows, columns}), .p = p, .key = key}, host_stream);
  dropout({.x = from, .y = view(sum, {rows, columns}), .p = p, .key = key, .accumulate = true}, host_stream);
  const auto scale = static_cast<float>(1 / (1 - rounded_p(p)));
  for (std::int64_t n = 0; n < rows; ++n)
    for (std::int64_t c = 0; c < columns; ++c) {
      const auto i = static_cast<std::size_t>(n * columns + c);
      const float kept = is_kept(key, n, c, columns, p) ? static_cast<float>(x[i]) * scale : 0;
      EXPECT_EQ(static_cast<float>(y[i]), static_cast<float>(T(kept))) << n << " " << c;
      EXPECT_EQ(static_cast<float>(sum[i]), static_cast<float>(T(static_cast<float>(base[i]) + kept))) << n << " " << c;
    }
}

TEST(Dropout, FollowsTheFormula) {
  for (const Isa set : instruction_sets()) {
    const Setting setting(1, set);
    SCOPED_TRACE(name_of(set));
    for (const std::int64_t columns : {1, 3, 4, 6, 9, 511, 512, 513, 1000}) follows_the_formula<float>(3, columns, 0.3);
    for (const std::int64_t columns : {37, 512, 521}) follows_the_formula<double>(2, columns, 0.05);
    for (const double p : {0.0, 1e-6, 1 - 1e-9}) follows_the_formula<float>(2, 37, p);
    for (const double p : {0.25, 0.0, 1 - 1e-9})
      for (const std::int64_t columns : {3, 37, 511, 512, 521}) {
        rounds_once<bf16>(columns, p);
        rounds_once<f16>(columns, p);
      }
  }
}

TEST(Dropout, AnySplitOfTheRowsAndAnyThreads) {
  constexpr std::int64_t rows = 37, columns = 70;
  auto x = random_vector<float>(rows * columns, 1);
  std::vector<float> all(x.size());
  dropout({.x = view(x, {rows, columns}), .y = view(all, {rows, columns}), .p = 0.5, .key = 3}, host_stream);
  for (const int threads : {1, 2, 3}) {
    const Setting setting(threads);
    auto y = x;  // in place
    const TensorView whole = view(y, {rows, columns});
    for (std::int64_t n = 0; n < rows; n += 10) {
      const TensorView part = whole.rows(n, std::min<std::int64_t>(10, rows - n));
      dropout({.x = part, .y = part, .p = 0.5, .key = 3, .first_row = n}, host_stream);
    }
    EXPECT_EQ(y, all);
  }
}

TEST(Dropout, AnySplitOfTheColumns) {
  constexpr std::int64_t rows = 5, columns = 70;
  auto x = random_vector<float>(rows * columns, 1);
  std::vector<float> all(x.size());
  dropout({.x = view(x, {rows, columns}), .y = view(all, {rows, columns}), .p = 0.5, .key = 3, .first_row = 9},
          host_stream);
  for (std::int64_t first = 0; first < columns; first += 24) {
    const std::int64_t count = std::min<std::int64_t>(24, columns - first);
    std::vector<float> part, expected;
    for (std::int64_t n = 0; n < rows; ++n)
      for (std::int64_t c = first; c < first + count; ++c) {
        part.push_back(x[static_cast<std::size_t>(n * columns + c)]);
        expected.push_back(all[static_cast<std::size_t>(n * columns + c)]);
      }
    const TensorView of = view(part, {rows, count});
    dropout({.x = of, .y = of, .p = 0.5, .key = 3, .first_row = 9, .first_column = first, .columns = columns},
            host_stream);
    EXPECT_EQ(part, expected) << first;
  }
}

TEST(Dropout, KeepsTheExpectedShareAndKeysDiffer) {
  constexpr std::int64_t rows = 100, columns = 1000;
  std::vector<float> x(rows * columns, 1.0F), a(x.size()), b(x.size());
  const auto share = [](const std::vector<float>& y) {
    return static_cast<double>(std::ranges::count_if(y, [](float v) { return v != 0; })) /
           static_cast<double>(y.size());
  };
  dropout({.x = view(x, {rows, columns}), .y = view(a, {rows, columns}), .p = 0.2, .key = 1}, host_stream);
  dropout({.x = view(x, {rows, columns}), .y = view(b, {rows, columns}), .p = 0.2, .key = 2}, host_stream);
  EXPECT_NEAR(share(a), 0.8, 0.006);
  EXPECT_NEAR(share(b), 0.8, 0.006);
  EXPECT_NE(a, b);
}

TEST(Dropout, ThresholdAndScaleAreOfTheRoundedProbability) {
  EXPECT_EQ(dropout_scalars(0).threshold, 0);
  EXPECT_EQ(dropout_scalars(0).scale, 1);
  EXPECT_EQ(dropout_scalars(0.1).threshold, 6554);
  EXPECT_EQ(dropout_scalars(0.1).scale, 65536.0 / (65536 - 6554));
  EXPECT_EQ(dropout_scalars(1 - 1e-9).threshold, 65535);  // not 65536, with which nothing is kept
}

}  // namespace
}  // namespace tessera::kernels
