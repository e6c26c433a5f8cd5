// SPDX-License-Identifier: Apache-2.0
// ExactSum: against integers of 128 bits and known sums; any order, any grouping; the ends of the range.
#include "runtime/base/exact_sum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace tessera {
namespace {

double sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (const double v : values) sum.add(v);
  return sum.value();
}

TEST(ExactSum, SingleValuesComeBack) {
  using Limits = std::numeric_limits<double>;
  for (const double x : {0.0, 1.0, 0.1, 1e300, 1e-300, Limits::max(), Limits::min(), Limits::denorm_min(),
                         Limits::min() - Limits::denorm_min(), 3 * Limits::denorm_min(), 0x1.fffffffffffffp-1022,
                         0x1p-1074, 0x1p-1043, 0x1p1023}) {
    EXPECT_EQ(sum_of({x}), x);
    EXPECT_EQ(sum_of({-x}), -x);
    EXPECT_EQ(sum_of({x, -x}), 0);
    EXPECT_EQ(sum_of({x, x, -x}), x);
  }
}

TEST(ExactSum, EveryExponent) {
  for (int e = -1074; e <= 1023; ++e) {
    const double x = std::ldexp(1.0, e);
    ExactSum sum;
    sum.add(x);
    EXPECT_EQ(sum.value(), x) << e;
    sum.add(1.5);
    sum.add(-x);
    EXPECT_EQ(sum.value(), 1.5) << e;
  }
}

TEST(ExactSum, CancellationLosesNothing) {
  EXPECT_EQ(sum_of({1e308, 1.0, -1e308}), 1.0);
  EXPECT_EQ(sum_of({1e308, 1e-320, -1e308}), 1e-320);
  EXPECT_EQ(sum_of({1e16, 1, 1, -1e16}), 2.0);
}

TEST(ExactSum, RoundsToNearestEven) {
  const double half = 0x1p-53;  // half a unit in the last place of 1
  EXPECT_EQ(sum_of({1.0, half}), 1.0);
  EXPECT_EQ(sum_of({1.0, half, 0x1p-1074}), 1.0 + 0x1p-52);
  EXPECT_EQ(sum_of({1.0, half, -0x1p-1074}), 1.0);
  EXPECT_EQ(sum_of({1.0 + 0x1p-52, half}), 1.0 + 0x1p-51);
  EXPECT_EQ(sum_of({-1.0, -half, -0x1p-1074}), -1.0 - 0x1p-52);
}

TEST(ExactSum, EqualsIntegers) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    ExactSum sum;
    __int128 exact = 0;
    const int shift = static_cast<int>(random() % 200) - 100;
    for (int i = 0; i < 500; ++i) {
      const auto mantissa = static_cast<std::int64_t>(random()) >> (11 + random() % 40);  // at most 53 bits
      const int up = static_cast<int>(random() % 60);
      exact += static_cast<__int128>(mantissa) << up;
      sum.add(std::ldexp(static_cast<double>(mantissa), up + shift));
    }
    EXPECT_EQ(sum.value(), std::ldexp(static_cast<double>(exact), shift)) << round;  // one rounding, to nearest even
  }
}

TEST(ExactSum, AnyOrderAnyGrouping) {
  std::mt19937_64 random(2);
  std::vector<double> values;
  for (int i = 0; i < 3000; ++i)
    values.push_back(
        std::ldexp(static_cast<double>(static_cast<std::int64_t>(random())), static_cast<int>(random() % 400) - 260));
  ExactSum total;
  for (const double v : values) total.add(v);
  for (int round = 0; round < 20; ++round) {
    std::shuffle(values.begin(), values.end(), random);
    std::vector<ExactSum> ranks(1 + random() % 7);
    for (std::size_t i = 0; i < values.size(); ++i) ranks[i % ranks.size()].add(values[i]);
    ExactSum sum;
    for (const auto& rank : ranks) sum.add(rank);
    EXPECT_EQ(sum.value(), total.value());
  }
  // Near the truth that long double sees, after sorting from small to large.
  std::sort(values.begin(), values.end(), [](double a, double b) { return std::abs(a) < std::abs(b); });
  long double truth = 0, size = 0;
  for (const double v : values) truth += v, size += std::abs(v);
  EXPECT_NEAR(total.value(), static_cast<double>(truth), 1e-15 * static_cast<double>(size));
}

TEST(ExactSum, ManyAddingsBetweenReads) {
  ExactSum one, sum;
  one.add(std::numeric_limits<float>::max());
  one.add(-0.25);
  for (int i = 0; i < 30; ++i) one.add(ExactSum(one));  // 2^30 times
  EXPECT_EQ(one.value(), std::ldexp(static_cast<double>(std::numeric_limits<float>::max()) - 0.25, 30));
}

/// The sum of max_additions times the same three digits.
ExactSum at_the_bound(double x) {
  ExactSum sum;
  sum.add(x);
  for (std::int64_t n = 1; n < ExactSum::max_additions; n *= 2) sum.add(ExactSum(sum));
  return sum;
}

TEST(ExactSum, CarriesDoNotChangeTheValue) {
  const double ulps = 0x1.fffffffffffffp0;  // all digits are full
  for (const double x : {ulps, -ulps, std::ldexp(ulps, 900), -std::ldexp(ulps, -1000), 0x1p-1074, 0.0}) {
    ExactSum sum = at_the_bound(x), other;
    other.add(-1.5);
    other.add(0x1p-300);
    sum.add(other);
    const double value = sum.value();
    for (int i = 0; i < 3; ++i) {
      sum.carry();
      EXPECT_EQ(sum.value(), value);
      for (std::size_t d = 0; d + 1 < ExactSum::num_digits; ++d)
        EXPECT_LT(std::abs(sum.counters()[d]), (std::int64_t{1} << 32) + (std::int64_t{1} << 31));
    }
  }
}

TEST(ExactSum, AfterACarryAsManySumsAreAddedAgain) {
  for (const double x : {0x1.fffffffffffffp0, -0x1.fffffffffffffp0}) {
    ExactSum sum = at_the_bound(x);
    for (int round = 0; round < 4; ++round) {  // without the carries, the digits overflow in the second round
      EXPECT_EQ(sum.value(), std::ldexp(x, 30 * (round + 1)));
      sum.carry();
      for (std::int64_t n = 1; n < ExactSum::max_additions; n *= 2) sum.add(ExactSum(sum));
    }
  }
}

TEST(ExactSum, ACarryKeepsWhatIsNotFinite) {
  ExactSum sum;
  sum.add(std::numeric_limits<double>::infinity());
  sum.carry();
  EXPECT_TRUE(sum.nonfinite());
}

TEST(ExactSum, NonFiniteIsSaid) {
  for (const double bad : {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()}) {
    ExactSum sum, other;
    sum.add(1);
    EXPECT_FALSE(sum.nonfinite());
    other.add(bad);
    sum.add(other);
    EXPECT_TRUE(sum.nonfinite());
    EXPECT_TRUE(std::isnan(sum.value()));
    sum.clear();
    EXPECT_EQ(sum.value(), 0);
  }
}

}  // namespace
}  // namespace tessera
