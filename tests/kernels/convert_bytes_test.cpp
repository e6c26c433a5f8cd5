// SPDX-License-Identifier: Apache-2.0
// convert_bytes: rounding to 16 bits against a search for the nearest neighbor; NaNs, infinities, and what does not
// fit. Every instruction set.

#include "kernels/convert.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "reference.hpp"

namespace tessera::kernels {
namespace {

const float infinity = std::numeric_limits<float>::infinity();

float widen_f16(std::uint16_t bits) { return half::from_f16(bits); }
float widen_bf16(std::uint16_t bits) { return half::from_bf16(bits); }

/// One element; nullopt if it does not fit.
template <class From>
std::optional<std::uint16_t> narrowed(From value, DType source, DType target) {
  std::uint16_t out = 0;
  if (convert_bytes(
          {reinterpret_cast<const std::byte*>(&value), source, reinterpret_cast<std::byte*>(&out), target, 1}) == 0)
    return std::nullopt;
  return out;
}
/// The nearest of all 16-bit values, the even one on a tie; beyond the largest as IEEE 754 rounds.
std::uint16_t nearest(double value, float (*widen)(std::uint16_t), std::uint16_t infinite) {
  std::uint16_t low = 0, high = infinite;  // magnitudes; ordered as their bits are
  const double magnitude = std::abs(value);
  while (high - low > 1) {
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    (static_cast<double>(widen(middle)) <= magnitude ? low : high) = middle;
  }
  const double below = static_cast<double>(widen(low));
  // Infinity takes the place of the next value.
  const double above = high == infinite
                           ? below + (below - static_cast<double>(widen(static_cast<std::uint16_t>(low - 1))))
                           : static_cast<double>(widen(high));
  const double to_below = magnitude - below, to_above = above - magnitude;
  const std::uint16_t chosen = to_below < to_above || (to_below == to_above && low % 2 == 0) ? low : high;
  return static_cast<std::uint16_t>(chosen | (std::signbit(value) ? 0x8000 : 0));
}

std::optional<std::uint16_t> expected(double value, float (*widen)(std::uint16_t), std::uint16_t infinite) {
  const std::uint16_t bits = nearest(value, widen, infinite);
  return (bits & 0x7fff) == infinite ? std::nullopt : std::optional(bits);
}

TEST(ConvertBytes, ToSixteenBitsRoundsToNearestEven) {
  std::mt19937 random(7);
  std::vector<float> values = {0.0F,
                               -0.0F,
                               1.0F,
                               65504.0F,
                               65519.996F,
                               65520.0F,
                               -65520.0F,
                               65536.0F,
                               0x1p-24F,
                               0x1p-25F,
                               0x1.000002p-25F,
                               0x1p-14F,
                               0x1.ffcp-15F,
                               0x1.ffep-15F,
                               std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::denorm_min(),
                               3.3895314e38F,
                               0x1.ffp127F};
  for (int i = 0; i < 200000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isfinite(value)) values.push_back(value);
  }
  std::uniform_real_distribution<float> exponents(-26, 17), signs(-1, 1);
  for (int i = 0; i < 200000; ++i) {  // fp16's range; every third one on a tie
    float value = std::copysign(std::exp2(exponents(random)), signs(random));
    if (i % 3 == 0) value = std::bit_cast<float>((std::bit_cast<std::uint32_t>(value) & ~0x1fffu) | 0x1000u);
    values.push_back(value);
  }
  for (const Isa set : instruction_sets()) {
    const Setting setting(1, set);
    for (const float value : values) {
      ASSERT_EQ(narrowed(value, DType::f32, DType::f16), expected(value, widen_f16, 0x7c00)) << value;
      ASSERT_EQ(narrowed(value, DType::f32, DType::bf16), expected(value, widen_bf16, 0x7f80)) << value;
    }
  }
}

TEST(ConvertBytes, DoublesAreRoundedOnce) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 200000; ++i) {
    // Just beside a tie of bf16: rounding to fp32 first would fall onto the tie.
    const auto base = std::bit_cast<float>((static_cast<std::uint32_t>(random()) & 0x7fff0000u) | 0x8000u);
    if (!std::isfinite(base) || std::abs(base) < 1e-37F) continue;
    const double value = static_cast<double>(base) * (1 + (i % 2 == 0 ? 1e-12 : -1e-12));
    ASSERT_EQ(narrowed(value, DType::f64, DType::bf16), expected(value, widen_bf16, 0x7f80)) << value;
  }
  EXPECT_EQ(narrowed(1.5, DType::f64, DType::bf16), 0x3fc0);
  EXPECT_EQ(narrowed(1e-300, DType::f64, DType::f16), 0);
}

template <class From, class To>
std::vector<To> all(const std::vector<From>& from, DType source, DType target, std::int64_t done) {
  std::vector<To> to(from.size());
  EXPECT_EQ(convert_bytes({reinterpret_cast<const std::byte*>(from.data()), source,
                           reinterpret_cast<std::byte*>(to.data()), target, static_cast<std::int64_t>(from.size())}),
            done);
  return to;
}

TEST(ConvertBytes, EveryNarrowValueComesBackUnchanged) {
  std::vector<std::uint16_t> bits;
  for (std::uint32_t i = 0; i < 65536; ++i) bits.push_back(static_cast<std::uint16_t>(i));
  for (const Isa set : instruction_sets())
    for (const DType dtype : {DType::bf16, DType::f16}) {  // NaNs with their payload included
      const Setting setting(1, set);
      const auto wide = all<std::uint16_t, float>(bits, dtype, DType::f32, 65536);
      EXPECT_EQ((all<float, std::uint16_t>(wide, DType::f32, dtype, 65536)), bits) << name_of(dtype);
    }
}

TEST(ConvertBytes, WhatDoesNotFitIsFound) {
  std::vector<float> values(1000, 1.0F);
  values[0] = infinity, values[1] = -infinity, values[2] = std::numeric_limits<float>::quiet_NaN();
  const auto narrow = all<float, std::uint16_t>(values, DType::f32, DType::f16, 1000);
  EXPECT_EQ(narrow[0], 0x7c00);
  EXPECT_EQ(narrow[1], 0xfc00);
  EXPECT_TRUE(std::isnan(widen_f16(narrow[2])));
  values[777] = 1e5F;
  (void)all<float, std::uint16_t>(values, DType::f32, DType::f16, 777);
  (void)all<float, std::uint16_t>(values, DType::f32, DType::bf16, 1000);
  (void)all<double, float>({1, 1e39, 2}, DType::f64, DType::f32, 1);
  (void)all<double, float>({1, static_cast<double>(infinity), 2}, DType::f64, DType::f32, 3);
}

}  // namespace
}  // namespace tessera::kernels
