// SPDX-License-Identifier: Apache-2.0
#pragma once
// exp, log and fused multiply-add for host/isa, of a number or of a register of them (Vec, with the same bits in every
// lane): no branches and no calls, so that loops of them vectorize. Internal linkage: each instruction set has its own.

#include <cstdint>

#ifndef TESSERA_ISA
#error "host/isa sources are compiled by kernels/CMakeLists.txt, once per instruction set"
#endif

#include "kernels/host/isa/vec.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

template <class To, class From>
inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

template <class T>
constexpr bool is_register = !std::is_arithmetic_v<T>;
template <class T>
struct NumberOf {
  using type = std::conditional_t<std::is_same_v<T, Vec<float>>, float, double>;
};
template <class T>
requires std::is_arithmetic_v<T>
struct NumberOf<T> {
  using type = T;
};
/// The type of a number, or of a register's numbers.
template <class T>
using Number = typename NumberOf<T>::type;

/// `value` as a T: in every lane of a register.
template <class T>
inline T all(Number<T> value) {
  if constexpr (is_register<T>) return splat<Number<T>>(value);
  else return value;
}

/// a·b + c in the fastest way, one rounding or two: for results that are held to a tolerance.
template <class T>
inline T madd(T a, T b, T c) {
  if constexpr (is_register<T>) return multiply_add<Number<T>>(a, b, c);
#ifdef __FMA__
  else if constexpr (sizeof(T) == 4) return __builtin_fmaf(a, b, c);
  else return __builtin_fma(a, b, c);
#else
  else return a * b + c;
#endif
}

/// a·b + c rounded once, the same bits on every instruction set: for results that are held to the bit.
inline float fma_exact(float a, float b, float c) {
#ifdef __FMA__
  return __builtin_fmaf(a, b, c);
#else
  // The product is exact in double; the sum is rounded to odd there, so that rounding it to float is rounding the exact
  // sum (Boldo, Melquiond 2008).
  const double product = static_cast<double>(a) * static_cast<double>(b), addend = static_cast<double>(c);
  const double sum = product + addend;
  const double part = sum - product;
  const double rest = (product - (sum - part)) + (addend - part);  // sum + rest is exact (Knuth's TwoSum)
  const auto bits = bits_as<std::uint64_t>(sum), rest_bits = bits_as<std::uint64_t>(rest);
  const std::uint64_t outward = 1 - ((bits ^ rest_bits) >> 63) * 2;  // towards the exact value: +1 or -1
  const bool inexact = rest < 0 || rest > 0;                         // not of a NaN, which an infinite sum makes
  const std::uint64_t even = ~bits & 1;
  return static_cast<float>(bits_as<double>(bits + (inexact ? even * outward : 0)));
#endif
}

template <class T>
struct Real;
template <>
struct Real<float> {
  using Bits = std::uint32_t;
  using Signed = std::int32_t;
  static constexpr Signed all_but_sign = 0x7fffffff;
  static constexpr int mantissa_bits = 23;
  static constexpr Bits bias = 127;
  static constexpr float magic = 12582912.0F;  // 1.5·2^23: adding it rounds to an integer, left in the low bits
  static constexpr float exp_limit = 87.0F;
  static constexpr float ln2_high = 0.693359375F, ln2_low = -2.12194440e-4F;
  static constexpr Bits sqrt_half = 0x3f3504f3;
  static constexpr int log_coefficients = 5;
};
template <>
struct Real<double> {
  using Bits = std::uint64_t;
  using Signed = std::int64_t;
  static constexpr Signed all_but_sign = 0x7fffffffffffffff;
  static constexpr int mantissa_bits = 52;
  static constexpr Bits bias = 1023;
  static constexpr double magic = 6755399441055744.0;  // 1.5·2^52
  static constexpr double exp_limit = 708.0;
  static constexpr double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;
  static constexpr Bits sqrt_half = 0x3fe6a09e667f3bcd;
  static constexpr int log_coefficients = 11;
};
template <>
struct Real<Vec<float>> : Real<float> {
  typedef std::uint32_t Bits __attribute__((vector_size(vec_bytes)));
  typedef std::int32_t Signed __attribute__((vector_size(vec_bytes)));
};
template <>
struct Real<Vec<double>> : Real<double> {
  typedef std::uint64_t Bits __attribute__((vector_size(vec_bytes)));
  typedef std::int64_t Signed __attribute__((vector_size(vec_bytes)));
};

/// The polynomial of these coefficients, the highest power's first, by Horner's rule.
template <class T, class... Rest>
inline T polynomial(T x, Number<T> first, Rest... rest) {
  T sum = all<T>(first);
  ((sum = madd(sum, x, all<T>(rest))), ...);
  return sum;
}

/// (e^r - 1 - r)/r² on |r| <= ln2/2: a fit of degree 4 (1e-8 in e^r) in float, Taylor's series in double.
template <class T>
inline T exp_tail(T r) {
  if constexpr (sizeof(Number<T>) == 4)
    return polynomial(r, 0.001392621346615414F, 0.008363202971575855F, 0.041666554437688616F, 0.16666576845993977F,
                      0.5F);
  else
    return polynomial(r, 1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0, 1.0 / 362880.0,
                      1.0 / 40320.0, 1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5);
}

/// x with its magnitude clamped to `limit`, NaN too: by vrangeps (the smaller magnitude, the sign of x) or on integers,
/// whose minimum compiles without a branch.
template <class T>
inline T clamp_magnitude(T x, Number<T> limit) {
#ifdef __AVX512DQ__
  if constexpr (std::is_same_v<T, Vec<float>>)
    return _mm512_maskz_range_ps(0xffff, x, all<T>(limit), 0b0010);  // see vec.hpp
#endif
  using Signed = typename Real<T>::Signed;
  constexpr auto rest = Real<T>::all_but_sign;
  const Signed bits = bits_as<Signed>(x), magnitude = bits & rest, most = bits_as<Signed>(all<T>(limit));
  return bits_as<T>((magnitude < most ? magnitude : most) | (bits & ~rest));
}

/// p·2^n for whole n, whose bits `shifted` = n + magic has at its end; the result is a normal number.
template <class T>
inline T scale_by_power(T p, [[maybe_unused]] T n, [[maybe_unused]] T shifted) {
#ifdef __AVX512F__
  if constexpr (std::is_same_v<T, Vec<float>>) return _mm512_maskz_scalef_ps(0xffff, p, n);  // see vec.hpp
#endif
  using R = Real<T>;
  using Bits = typename R::Bits;
  return p * bits_as<T>((bits_as<Bits>(shifted) << R::mantissa_bits) + (R::bias << R::mantissa_bits));
}

/// e^x within 2 ulp for |x| <= exp_limit; undefined beyond.
template <class T>
inline T exp_bounded(T x) {
  using R = Real<T>;
  using N = Number<T>;
  const T shifted = madd(x, all<T>(static_cast<N>(1.4426950408889634074)), all<T>(R::magic));
  const T n = shifted - R::magic;
  const T r = madd(n, all<T>(-R::ln2_low), madd(n, all<T>(-R::ln2_high), x));
  const T p = madd(r * r, exp_tail(r), r) + N(1);
  return scale_by_power(p, n, shifted);
}

/// e^x within 2 ulp; 0 below -exp_limit (where the result would be near the smallest normal number), inf above it; NaN
/// of NaN.
template <class T>
inline T exp(T x) {
  constexpr auto limit = Real<T>::exp_limit;
  const T result = exp_bounded(clamp_magnitude(x, limit)), zero = all<T>(0);
  const T beyond = x < zero ? zero : x + static_cast<Number<T>>(__builtin_inff());
  return (x >= -limit) & (x <= limit) ? result : beyond;
}

/// Natural logarithm within 2 ulp or so of x, normal and positive; anything else gives nonsense.
template <class T>
inline T log(T x) {
  using R = Real<T>;
  using Bits = typename R::Bits;
  const Bits bits = bits_as<Bits>(x);
  const Bits exponent = (bits + ((R::bias << R::mantissa_bits) - R::sqrt_half)) >> R::mantissa_bits;  // biased
  const T m = bits_as<T>(bits - ((exponent - R::bias) << R::mantissa_bits));                          // [√½, √2)
  const T e = bits_as<T>(bits_as<Bits>(R::magic) + exponent) - (R::magic + static_cast<T>(R::bias));
  // log m = 2 atanh(s), s = (m - 1)/(m + 1)
  const T s = (m - T(1)) / (m + T(1)), s2 = s * s;
  T p = T(2) / static_cast<T>(2 * R::log_coefficients - 1);
#pragma GCC unroll 16
  for (int k = R::log_coefficients - 2; k >= 1; --k) p = madd(p, s2, T(2) / static_cast<T>(2 * k + 1));
  const T tail = s * s2 * p;
  return madd(e, R::ln2_high, madd(e, R::ln2_low, tail) + T(2) * s);
}

}  // namespace
}  // namespace tessera::kernels::host::TESSERA_ISA
