// SPDX-License-Identifier: Apache-2.0
#pragma once
// References of 16-bit kernels: the same kernel in fp32 on the same values, rounded once.

#include "reference.hpp"
#include "runtime/base/half.hpp"

namespace tessera::kernels {

/// random_vector's numbers, rounded to T.
template <class T>
std::vector<T> random_16bit(std::int64_t n, std::uint64_t seed, double spread = 1) {
  std::vector<T> v(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = T(static_cast<float>(spread * normal(seed, i)));
  return v;
}

template <class T>
std::vector<float> widened(const std::vector<T>& v) {
  return {v.begin(), v.end()};
}

/// Every element is the fp32 result rounded once: equal bits, a NaN for a NaN.
template <class T>
void expect_rounded(const std::vector<T>& narrow, const std::vector<float>& wide) {
  ASSERT_EQ(narrow.size(), wide.size());
  for (std::size_t i = 0; i < wide.size(); ++i) {
    if (std::isnan(wide[i])) ASSERT_TRUE(std::isnan(static_cast<float>(narrow[i]))) << i;
    else ASSERT_EQ(narrow[i].bits, T(wide[i]).bits) << i << ": " << static_cast<float>(narrow[i]) << " of " << wide[i];
  }
}

/// The spacing of T's values around x, relative to x.
template <class T>
inline constexpr double half_epsilon = std::is_same_v<T, bf16> ? 1.0 / 128 : 1.0 / 1024;

/// Every element is within half a unit in the last place of the fp32 result, plus `slack` of the largest, for sums in
/// another order.
template <class T>
void expect_near_rounded(const std::vector<T>& narrow, const std::vector<float>& wide, double slack) {
  ASSERT_EQ(narrow.size(), wide.size());
  double size = 0;
  for (const float x : wide) size = std::max(size, std::abs(static_cast<double>(x)));
  for (std::size_t i = 0; i < wide.size(); ++i) {
    const double error = std::abs(static_cast<double>(narrow[i]) - static_cast<double>(wide[i]));
    ASSERT_LE(error, half_epsilon<T> / 2 * std::abs(static_cast<double>(wide[i])) + slack * size)
        << i << ": " << wide[i];
  }
}

/// What GELU and SwiGLU of 16-bit floats may add to rounding (numerics.md): exponentials and quotients are shorter than
/// in fp32.
template <class T>
inline constexpr double function_error = std::is_same_v<T, bf16> ? 1.0 / 2048 : 1.0 / 8192;

/// Every element is within half a unit in the last place of the fp32 result, plus function_error of it and of its
/// `size`, if given: a gradient is a sum, which can be small. Of bf16 subnormal numbers may be 0; infinite and NaN are
/// equal.
template <class T>
void expect_near_function(const std::vector<T>& narrow, const std::vector<float>& wide,
                          const std::vector<float>& sizes = {}) {
  constexpr double subnormal = std::is_same_v<T, bf16> ? 0x1p-126 : 0x1p-25;  // f16: half of their spacing
  ASSERT_EQ(narrow.size(), wide.size());
  for (std::size_t i = 0; i < wide.size(); ++i) {
    const auto stored = static_cast<double>(narrow[i]), truth = static_cast<double>(wide[i]);
    if (!std::isfinite(static_cast<float>(T(wide[i])))) {
      if (std::isnan(truth)) ASSERT_TRUE(std::isnan(stored)) << i;
      else ASSERT_EQ(narrow[i].bits, T(wide[i]).bits) << i;
      continue;
    }
    const double size = sizes.empty() ? 0 : std::abs(static_cast<double>(sizes[i]));
    const double allowed =
        half_epsilon<T> / 2 * std::abs(truth) + function_error<T> * (std::abs(truth) + size) + subnormal;
    ASSERT_LE(std::abs(stored - truth), allowed) << i << ": " << stored << " of " << truth;
  }
}

template <class T>
class SixteenBit : public testing::Test {};
using SixteenBitTypes = testing::Types<bf16, f16>;

}  // namespace tessera::kernels
