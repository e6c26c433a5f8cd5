// SPDX-License-Identifier: Apache-2.0
#pragma once
// bf16 and fp16, for storage: arithmetic is fp32. Conversion to float is exact, from float it rounds to nearest even.
// No branches and no library calls, so that loops vectorize. Sources of every instruction set include this file: it
// includes nothing but <cstdint>.

#include <cstdint>

namespace tessera {

#define TESSERA_HALF_INLINE [[gnu::always_inline]] constexpr

namespace half {

TESSERA_HALF_INLINE std::uint32_t bits(float x) { return __builtin_bit_cast(std::uint32_t, x); }
TESSERA_HALF_INLINE float number(std::uint32_t x) { return __builtin_bit_cast(float, x); }

/// Signed, for comparisons: vector instructions compare signed numbers.
TESSERA_HALF_INLINE std::int32_t signed_bits(std::uint32_t x) { return static_cast<std::int32_t>(x); }

TESSERA_HALF_INLINE float from_bf16(std::uint16_t x) { return number(static_cast<std::uint32_t>(x) << 16); }

/// Rounds to nearest even; a NaN becomes quiet and keeps its upper payload.
TESSERA_HALF_INLINE std::uint16_t to_bf16(float x) {
  const std::uint32_t b = bits(x), rounded = (b + 0x7fff + ((b >> 16) & 1)) >> 16, nan = (b >> 16) | 0x40;
  return static_cast<std::uint16_t>(signed_bits(b & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

TESSERA_HALF_INLINE float from_f16(std::uint16_t x) {
  const std::uint32_t h = x, sign = (h & 0x8000) << 16, magnitude = (h & 0x7fff) << 13;
  // The exponents' biases differ by 112; the multiplication is exact, also for subnormal numbers.
  const std::uint32_t finite = bits(number(magnitude) * 0x1p112F);
  const std::uint32_t special = magnitude | 0x7f800000 | (signed_bits(magnitude) > 0x0f800000 ? 0x400000 : 0);
  return number(sign | (signed_bits(magnitude) >= 0x0f800000 ? special : finite));
}

/// Rounds to nearest even, subnormal numbers too; infinity from 65520 on; a NaN becomes quiet and keeps its upper
/// payload.
TESSERA_HALF_INLINE std::uint16_t to_f16(float x) {
  const std::uint32_t b = bits(x), sign = (b >> 16) & 0x8000, magnitude = b & 0x7fffffff;
  const std::uint32_t normal = (magnitude - (112U << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  // Below 2^-14: adding ½, whose last bit is 2^-24, rounds to the step of subnormal numbers.
  const bool is_small = signed_bits(magnitude) < 0x38800000;
  const std::uint32_t small = is_small ? magnitude : 0;
  const std::uint32_t subnormal = bits(number(small) + 0.5F) - bits(0.5F);
  const std::uint32_t nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
  const std::uint32_t finite = is_small ? subnormal : normal;
  const std::uint32_t large = signed_bits(magnitude) > 0x7f800000 ? nan : 0x7c00;
  return static_cast<std::uint16_t>(sign | (signed_bits(magnitude) < 0x477ff000 ? finite : large));
}

}  // namespace half

/// bfloat16: the upper half of a float.
struct bf16 {
  std::uint16_t bits;

  bf16() = default;
  TESSERA_HALF_INLINE explicit bf16(float x) : bits(half::to_bf16(x)) {}
  TESSERA_HALF_INLINE operator float() const { return half::from_bf16(bits); }
};

/// IEEE binary16.
struct f16 {
  std::uint16_t bits;

  f16() = default;
  TESSERA_HALF_INLINE explicit f16(float x) : bits(half::to_f16(x)) {}
  TESSERA_HALF_INLINE operator float() const { return half::from_f16(bits); }
};

/// The type that values of T are computed in: float for 16-bit floats, else T.
template <class T>
struct AccOf {
  using type = T;
};
template <>
struct AccOf<bf16> {
  using type = float;
};
template <>
struct AccOf<f16> {
  using type = float;
};
template <class T>
using Acc = typename AccOf<T>::type;

template <class T>
inline constexpr bool is_half = sizeof(T) == 2;

/// x in the type it is computed in.
template <class T>
TESSERA_HALF_INLINE Acc<T> widen(T x) {
  return static_cast<Acc<T>>(x);
}

/// to = x, rounded to T. Loops of it vectorize; g++ 12 does not vectorize the assignment of a T constructed from x.
template <class T>
TESSERA_HALF_INLINE void put(T& to, Acc<T> x) {
  if constexpr (__is_same(T, bf16)) to.bits = half::to_bf16(x);
  else if constexpr (__is_same(T, f16)) to.bits = half::to_f16(x);
  else to = x;
}

#undef TESSERA_HALF_INLINE

}  // namespace tessera
