// SPDX-License-Identifier: Apache-2.0
// Casts of 16-bit floats: every bit pattern to fp32 and back, every rounding interval with its ties against arithmetic
// in double, NaN, infinity and subnormal numbers; the same bits on every instruction set and for any number of threads.
#include "kernels/convert.hpp"

#include <bit>
#include <cstring>

#include "reference.hpp"

namespace tessera::kernels {
namespace {

/// The value of a finite pattern, by the format's definition.
template <class T>
double value_of(std::uint16_t bits) {
  constexpr int mantissa = std::is_same_v<T, bf16> ? 7 : 10, exponents = 15 - mantissa,
                bias = (1 << (exponents - 1)) - 1;
  const int exponent = (bits & 0x7fff) >> mantissa, fraction = bits & ((1 << mantissa) - 1);
  const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias - mantissa)
                                         : std::ldexp(fraction + (1 << mantissa), exponent - bias - mantissa);
  return bits & 0x8000 ? -magnitude : magnitude;
}
template <class T>
constexpr std::uint16_t infinity_bits = std::is_same_v<T, bf16> ? 0x7f80 : 0x7c00;

template <class T>
std::uint16_t narrowed(float x) {
  return T(x).bits;
}

template <class T>
class SixteenBitFloats : public testing::Test {};
using Types = testing::Types<bf16, f16>;
TYPED_TEST_SUITE(SixteenBitFloats, Types);

TYPED_TEST(SixteenBitFloats, EveryPatternThereAndBack) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    TypeParam x;
    x.bits = static_cast<std::uint16_t>(i);
    const float wide = x;
    if ((i & 0x7fff) > infinity_bits<TypeParam>) {
      EXPECT_TRUE(std::isnan(wide)) << i;
      EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(wide)))) << i;
      EXPECT_EQ(
          narrowed<TypeParam>(wide) & ~(infinity_bits<TypeParam> == 0x7f80 ? 0x40 : 0x200),
          static_cast<int>(i) & ~(infinity_bits<TypeParam> == 0x7f80 ? 0x40 : 0x200));  // payload kept, made quiet
    } else {
      if ((i & 0x7fff) == infinity_bits<TypeParam>) ASSERT_EQ(wide, i & 0x8000 ? -INFINITY : INFINITY);
      else ASSERT_EQ(static_cast<double>(wide), value_of<TypeParam>(x.bits)) << i;
      ASSERT_EQ(std::signbit(wide), (i & 0x8000) != 0);
      ASSERT_EQ(narrowed<TypeParam>(wide), x.bits);
    }
  }
}

TYPED_TEST(SixteenBitFloats, RoundsToNearestAndTiesToEven) {
  for (std::uint32_t i = 0; i < infinity_bits<TypeParam>; ++i) {
    const auto low = static_cast<std::uint16_t>(i), high = static_cast<std::uint16_t>(i + 1);
    const double a = value_of<TypeParam>(low);
    const double b = high == infinity_bits<TypeParam> ? 2 * a - value_of<TypeParam>(static_cast<std::uint16_t>(i - 1))
                                                      : value_of<TypeParam>(high);
    const auto middle = static_cast<float>((a + b) / 2);
    ASSERT_EQ(static_cast<double>(middle), (a + b) / 2) << i;
    for (const float sign : {1.0F, -1.0F}) {
      const std::uint16_t bit = sign < 0 ? 0x8000 : 0;
      ASSERT_EQ(narrowed<TypeParam>(sign * middle), bit | (i % 2 == 0 ? low : high)) << i;
      ASSERT_EQ(narrowed<TypeParam>(sign * std::nextafter(middle, 0.0F)), bit | low) << i;
      ASSERT_EQ(narrowed<TypeParam>(sign * std::nextafter(middle, INFINITY)), bit | high) << i;
    }
  }
  for (const float x : {std::numeric_limits<float>::max(), INFINITY})
    EXPECT_EQ(narrowed<TypeParam>(x), infinity_bits<TypeParam>);
  EXPECT_EQ(narrowed<TypeParam>(-0.0F), 0x8000);
  EXPECT_EQ(narrowed<TypeParam>(std::numeric_limits<float>::denorm_min()), 0);
}

/// Floats of all kinds: random patterns, so NaNs and subnormal numbers among them.
std::vector<float> patterns(std::size_t n) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(i * 2654435761U));
  return x;
}

TYPED_TEST(SixteenBitFloats, KernelsAgreeWithTheTypeInEveryBit) {
  for (const Isa set : instruction_sets())
    for (const int num : {1, 2, 3}) {
      const Setting setting(num, set);
      for (const std::size_t n : {0, 1, 7, 16, 17, 8191, 100003}) {
        auto x = patterns(n);
        std::vector<TypeParam> y(n);
        std::vector<float> z(n);
        convert({.from = view(x), .to = view(y)}, host_stream);
        convert({.from = view(y), .to = view(z)}, host_stream);
        std::vector<TypeParam> serial(n);
        convert_serial({.from = view(x), .to = view(serial)}, host_stream);
        for (std::size_t i = 0; i < n; ++i) {
          ASSERT_EQ(y[i].bits, TypeParam(x[i]).bits) << name_of(set) << " " << x[i];
          ASSERT_EQ(serial[i].bits, y[i].bits);
          ASSERT_EQ(std::bit_cast<std::uint32_t>(z[i]), std::bit_cast<std::uint32_t>(static_cast<float>(y[i])));
        }
      }
    }
}

TEST(Convert, TypesAndSizesAreChecked) {
  std::vector<float> x(4);
  std::vector<double> wide(4);
  std::vector<bf16> y(4), few(3);
  EXPECT_THROW(convert({.from = view(x), .to = view(few)}, host_stream), std::logic_error);
  EXPECT_THROW(convert({.from = view(x), .to = view(x)}, host_stream), std::logic_error);
  EXPECT_THROW(convert({.from = view(wide), .to = view(y)}, host_stream), std::logic_error);
  EXPECT_THROW(convert({.from = view(y), .to = view(few)}, host_stream), std::logic_error);
}

TEST(Convert, StatisticsOf16BitFloatsAreFp32) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) EXPECT_EQ(stat_dtype(dtype), DType::f32);
  EXPECT_EQ(stat_dtype(DType::f64), DType::f64);
  EXPECT_EQ(size_of(dtype_of<bf16>::value), sizeof(bf16));
  EXPECT_EQ(dtype_of<f16>::value, DType::f16);
}

}  // namespace
}  // namespace tessera::kernels
