// SPDX-License-Identifier: Apache-2.0
#pragma once
// exp, tanh, log and fused multiply-add for host/isa, of a number, of a register of them (Vec) or of a group of
// registers, with the same bits in every lane: no branches and no calls, so that loops of them vectorize. Internal
// linkage: each instruction set has its own.

#include <cstdint>

#ifndef TESSERA_ISA
#error "host/isa sources are compiled by kernels/CMakeLists.txt, once per instruction set"
#endif

#include "kernels/host/isa/register_group.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

template <class To, class From>
inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

template <class T>
inline constexpr bool is_group = false;
template <class A>
inline constexpr bool is_group<RegisterGroup<A>> = true;
template <class T>
inline constexpr bool is_register = !std::is_arithmetic_v<T> && !is_group<T>;
template <class T>
struct NumberOf {
  using type = std::conditional_t<std::is_same_v<T, Vec<float>>, float, double>;
};
template <class A>
struct NumberOf<RegisterGroup<A>> {
  using type = A;
};
template <class T>
requires std::is_arithmetic_v<T>
struct NumberOf<T> {
  using type = T;
};
/// The type of a number, or of a register's or a group's numbers.
template <class T>
using Number = typename NumberOf<T>::type;

/// `value` as a T: in every lane.
template <class T>
[[gnu::always_inline]] inline T all(Number<T> value) {
  if constexpr (is_group<T>) return each([value](const auto&) { return splat<Number<T>>(value); }, T{});
  else if constexpr (is_register<T>) return splat<Number<T>>(value);
  else return value;
}

/// The same as a register or a group like `v`.
template <class T>
[[gnu::always_inline]] inline T like(const T&, std::type_identity_t<Number<T>> value) {
  return all<T>(value);
}

/// a·b + c in the fastest way, one rounding or two: for results that are held to a tolerance.
template <class T>
[[gnu::always_inline]] inline T madd(T a, T b, T c) {
  if constexpr (is_group<T>) return each(madd<Vec<Number<T>>>, a, b, c);
  else if constexpr (is_register<T>) return multiply_add<Number<T>>(a, b, c);
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
template <class A>
struct Real<RegisterGroup<A>> : Real<A> {};
template <>
struct Real<Vec<double>> : Real<double> {
  typedef std::uint64_t Bits __attribute__((vector_size(vec_bytes)));
  typedef std::int64_t Signed __attribute__((vector_size(vec_bytes)));
};

/// The polynomial of these coefficients, the highest power's first, by Horner's rule.
template <class T, class... Rest>
[[gnu::always_inline]] inline T polynomial(T x, Number<T> first, Rest... rest) {
  T sum = all<T>(first);
  ((sum = madd(sum, x, all<T>(rest))), ...);
  return sum;
}

/// (e^r - 1 - r)/r² on |r| <= ln2/2: a fit of degree 4 (1e-8 in e^r) in float, Taylor's series in double.
template <class T>
[[gnu::always_inline]] inline T exp_tail(T r) {
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
[[gnu::always_inline]] inline T clamp_magnitude(T x, Number<T> limit) {
  if constexpr (is_group<T>) {
    return each([limit](const Vec<Number<T>>& part) { return clamp_magnitude(part, limit); }, x);
  } else {
#ifdef __AVX512DQ__
    if constexpr (std::is_same_v<T, Vec<float>>)
      return _mm512_maskz_range_ps(0xffff, x, all<T>(limit), 0b0010);  // see vec.hpp
#endif
    using Signed = typename Real<T>::Signed;
    constexpr auto rest = Real<T>::all_but_sign;
    const Signed bits = bits_as<Signed>(x), magnitude = bits & rest, most = bits_as<Signed>(all<T>(limit));
    return bits_as<T>((magnitude < most ? magnitude : most) | (bits & ~rest));
  }
}

/// p·2^n for whole n, whose bits `shifted` = n + magic has at its end; the result is a normal number.
template <class T>
[[gnu::always_inline]] inline T scale_by_power(T p, [[maybe_unused]] T n, [[maybe_unused]] T shifted) {
  if constexpr (is_group<T>) {
    return each(scale_by_power<Vec<Number<T>>>, p, n, shifted);
  } else {
#ifdef __AVX512F__
    if constexpr (std::is_same_v<T, Vec<float>>) return _mm512_maskz_scalef_ps(0xffff, p, n);  // see vec.hpp
#endif
    using R = Real<T>;
    using Bits = typename R::Bits;
    return p * bits_as<T>((bits_as<Bits>(shifted) << R::mantissa_bits) + (R::bias << R::mantissa_bits));
  }
}

/// p·2^n as scale_by_power, of a normal p.
template <class T>
[[gnu::always_inline]] inline T add_to_exponent(T p, T shifted) {
  if constexpr (is_group<T>) {
    return each(add_to_exponent<Vec<Number<T>>>, p, shifted);
  } else {
    using Bits = typename Real<T>::Bits;
    return bits_as<T>(bits_as<Bits>(p) + (bits_as<Bits>(shifted) << Real<T>::mantissa_bits));
  }
}

/// e^x within 2 ulp for |x| <= exp_limit; undefined beyond.
template <class T>
[[gnu::always_inline]] inline T exp_bounded(T x) {
  using R = Real<T>;
  using N = Number<T>;
  const T shifted = madd(x, all<T>(static_cast<N>(1.4426950408889634074)), all<T>(R::magic));
  const T n = shifted - R::magic;
  const T r = madd(n, all<T>(-R::ln2_low), madd(n, all<T>(-R::ln2_high), x));
  const T p = madd(r * r, exp_tail(r), r) + N(1);
  return scale_by_power(p, n, shifted);
}

/// tanh x = m/(m + 2) with m = e^(2x) - 1, within some ulp, small x too: m is 2^n·(e^r - 1) + (2^n - 1). NaN of NaN.
template <class T>
inline T tanh(T x) {
  using R = Real<T>;
  using N = Number<T>;
  const T twice = clamp_magnitude(x + x, N(40));  // beyond, tanh x rounds to 1
  const T shifted = madd(twice, all<T>(static_cast<N>(1.4426950408889634074)), all<T>(R::magic));
  const T n = shifted - R::magic;
  const T r = madd(n, all<T>(-R::ln2_low), madd(n, all<T>(-R::ln2_high), twice));
  const T power = scale_by_power(all<T>(1), n, shifted);
  const T m = madd(power, madd(r * r, exp_tail(r), r), power - N(1));
  return x == x ? m / (m + N(2)) : x;
}

/// What exp_for<T> takes: x times this. Of 16-bit floats the exponent of 2.
template <class T>
inline constexpr double exp_unit = is_half<T> ? 1.4426950408889634074 : 1;

/// e^x, given x·exp_unit<T>, |x| <= 80, for a result that is stored as T: within 2 ulp; of bf16 and f16 within 7.5e-5
/// and 2.7e-6, relative (minimax polynomials), where rounding adds up to 3.9e-3 and 4.9e-4.
template <class T, class V>
[[gnu::always_inline]] inline V exp_for(const V& x) {
  if constexpr (!is_half<T>) {
    return exp_bounded(x);
  } else {
    const V shifted = x + Real<float>::magic, f = x - (shifted - Real<float>::magic);
    const auto power = [&](auto... coefficients) { return add_to_exponent(polynomial(f, coefficients...), shifted); };
    if constexpr (std::is_same_v<T, bf16>)
      return power(0.0551716685295105F, 0.2426111251115799F, 0.6932609677314758F, 0.9999280571937561F);
    else
      return power(0.009570102207362652F, 0.05591785907745361F, 0.240247443318367F, 0.6931217908859253F,
                   0.9999992847442627F);
  }
}

/// a/b for a result that is stored as T: rounded once, or a times an estimate of 1/b: of 16-bit floats within
/// 2^-14 with AVX-512, and of bf16 within 1.5·2^-12 with AVX2. b is in [1, 2^126].
template <class T, class V>
[[gnu::always_inline]] inline V quotient_for(const V& a, const V& b) {
  if constexpr (is_group<V>) return each(quotient_for<T, Vec<T>>, a, b);
#if defined(__AVX512F__)
  else if constexpr (is_half<T>)
    return a * reinterpret_cast<Vec<float>>(_mm512_maskz_rcp14_ps(0xffff, b));  // see vec.hpp
#elif defined(__AVX2__)
  else if constexpr (std::is_same_v<T, bf16>) return a * reinterpret_cast<Vec<float>>(_mm256_rcp_ps(b));
#endif
  else return a / b;
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
