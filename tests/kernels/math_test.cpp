// SPDX-License-Identifier: Apache-2.0
// exp, log and the fused multiply-add that every instruction set shares, over the whole range, in the baseline's
// arithmetic.
#define TESSERA_ISA under_test
#include "kernels/host/isa/math.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace tessera::kernels {
namespace {

namespace math = host::under_test;

TEST(Math, ExpFloat) {
  double worst = 0;
  for (int i = -173900; i <= 173900; ++i) {
    const float x = static_cast<float>(i) * 5e-4F;
    const double truth = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(math::exp(x)) - truth) / truth);
  }
  EXPECT_LT(worst, 2 * 0x1p-23);
}

TEST(Math, ExpDouble) {
  double worst = 0;
  for (int i = -177000; i <= 177000; ++i) {
    const double x = static_cast<double>(i) * 4e-3 * 0.9999999;
    const long double truth = std::exp(static_cast<long double>(x));
    worst = std::max(worst, static_cast<double>(std::abs(math::exp(x) - truth) / truth));
  }
  EXPECT_LT(worst, 2 * 0x1p-52);
}

template <class T>
void exp_edges() {
  constexpr T inf = std::numeric_limits<T>::infinity();
  EXPECT_EQ(math::exp(T(0)), T(1));
  EXPECT_EQ(math::exp(-T(0)), T(1));
  EXPECT_EQ(math::exp(-inf), T(0));
  EXPECT_EQ(math::exp(inf), inf);
  EXPECT_EQ(math::exp(std::numeric_limits<T>::lowest()), T(0));
  EXPECT_EQ(math::exp(std::numeric_limits<T>::max()), inf);
  EXPECT_TRUE(std::isnan(math::exp(std::numeric_limits<T>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(math::exp(-std::numeric_limits<T>::quiet_NaN())));
  EXPECT_EQ(math::exp(std::numeric_limits<T>::denorm_min()), T(1));
}

TEST(Math, ExpEdges) {
  exp_edges<float>();
  exp_edges<double>();
}

TEST(Math, Log) {
  std::mt19937_64 random(1);
  double worst = 0, worst_double = 0;
  for (int i = 0; i < 200000; ++i) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(0x00800000 + random() % (0x7f800000 - 0x00800000)));
    const double y = std::bit_cast<double>(0x0010000000000000 + random() % (0x7ff0000000000000 - 0x0010000000000000));
    const double near = 1 + std::ldexp(static_cast<double>(random() % 2001) - 1000, -20);
    const double truth = std::log(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(math::log(x)) - truth) / std::max(1e-6, std::abs(truth)));
    for (const double z : {y, near}) {
      const double exact = static_cast<double>(std::log(static_cast<long double>(z)));
      worst_double = std::max(worst_double, std::abs(math::log(z) - exact) / std::max(1e-12, std::abs(exact)));
    }
  }
  EXPECT_LT(worst, 3 * 0x1p-23);
  EXPECT_LT(worst_double, 3 * 0x1p-52);
  EXPECT_EQ(math::log(1.0F), 0.0F);
  EXPECT_EQ(math::log(1.0), 0.0);
}

bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

TEST(Math, FmaRoundsOnce) {
  std::mt19937_64 random(2);
  const float special[] = {0.0F,
                           -0.0F,
                           1.0F,
                           -1.0F,
                           1.0F + 0x1p-23F,
                           1.0F - 0x1p-24F,
                           0x1p-149F,
                           0x1p-126F,
                           0x1.fffffep127F,
                           0x1p-75F,
                           0x1p-24F,
                           std::numeric_limits<float>::infinity(),
                           -std::numeric_limits<float>::infinity(),
                           std::nanf("")};
  for (const float a : special)
    for (const float b : special)
      for (const float c : special)
        EXPECT_TRUE(same(math::fma_exact(a, b, c), std::fma(a, b, c))) << a << " " << b << " " << c;
  int rounded_twice = 0;
  for (int i = 0; i < 500000; ++i) {
    float a = std::bit_cast<float>(static_cast<std::uint32_t>(random())),
          b = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    float c = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (i % 2 == 0) {  // near each other, with few bits, so that sums fall on and beside ties
      a = 1.0F + static_cast<float>(random() % 64) * 0x1p-23F;
      b = 1.0F + static_cast<float>(random() % 64) * 0x1p-12F;
      c = std::ldexp(static_cast<float>(random() % 4096) - 2048.0F, static_cast<int>(random() % 90) - 60);
    }
    if (i % 8 == 1) {  // a product half-way between two floats, and an addend too small for a double to keep beside it
      a = 1.0F + 32 * 0x1p-23F;
      b = std::ldexp(1.0F + 64 * 0x1p-12F, static_cast<int>(random() % 40) - 20);
      c = std::ldexp(b, -54 - static_cast<int>(random() % 40)) * (random() % 2 ? 1.0F : -1.0F);
    }
    const float truth = std::fma(a, b, c);
    ASSERT_TRUE(same(math::fma_exact(a, b, c), truth)) << a << " " << b << " " << c;
    rounded_twice +=
        !same(static_cast<float>(static_cast<double>(a) * static_cast<double>(b) + static_cast<double>(c)), truth);
  }
  EXPECT_GT(rounded_twice, 1000) << "no case here tells one rounding from two";
}

}  // namespace
}  // namespace tessera::kernels
