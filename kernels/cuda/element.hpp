// SPDX-License-Identifier: Apache-2.0
#pragma once
// Elements as device memory holds them, and arithmetic that no compiler may fuse: the same source for nvcc and the host
// compiler, so that what devices compute per element is tested without one.

#include <cstdint>
#include <type_traits>

#include "kernels/host_device.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/base/half.hpp"

namespace tessera::kernels::cuda {

template <class To, class From>
TESSERA_HD To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

TESSERA_HD float to_float(float x) { return x; }
TESSERA_HD float to_float(bf16 x) { return bits_as<float>(static_cast<std::uint32_t>(x.bits) << 16); }
TESSERA_HD float to_float(f16 x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
#else
  return half::from_f16(x.bits);
#endif
}

/// Rounds to nearest even, as runtime/base/half.hpp does; a NaN becomes 0x7fff on a device.
template <class T>
TESSERA_HD T rounded(float x) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    T y;
    if constexpr (std::is_same_v<T, bf16>) asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    else asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
  }
#else
  return T(x);
#endif
}

// Each operation rounded once; the compiler may neither fuse nor approximate them.
#if defined(__CUDA_ARCH__)
TESSERA_HD float mul(float a, float b) { return __fmul_rn(a, b); }
TESSERA_HD float add(float a, float b) { return __fadd_rn(a, b); }
TESSERA_HD float sub(float a, float b) { return __fsub_rn(a, b); }
TESSERA_HD float div(float a, float b) { return __fdiv_rn(a, b); }
TESSERA_HD float root(float a) { return __fsqrt_rn(a); }
TESSERA_HD float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
TESSERA_HD double mul(double a, double b) { return __dmul_rn(a, b); }
TESSERA_HD double add(double a, double b) { return __dadd_rn(a, b); }
TESSERA_HD double sub(double a, double b) { return __dsub_rn(a, b); }
TESSERA_HD double div(double a, double b) { return __ddiv_rn(a, b); }
TESSERA_HD double root(double a) { return __dsqrt_rn(a); }
#else
TESSERA_HD float mul(float a, float b) { return a * b; }
TESSERA_HD float add(float a, float b) { return a + b; }
TESSERA_HD float sub(float a, float b) { return a - b; }
TESSERA_HD float div(float a, float b) { return a / b; }
TESSERA_HD float root(float a) { return __builtin_sqrtf(a); }
TESSERA_HD float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
TESSERA_HD double mul(double a, double b) { return a * b; }
TESSERA_HD double add(double a, double b) { return a + b; }
TESSERA_HD double sub(double a, double b) { return a - b; }
TESSERA_HD double div(double a, double b) { return a / b; }
TESSERA_HD double root(double a) { return __builtin_sqrt(a); }
#endif

}  // namespace tessera::kernels::cuda
