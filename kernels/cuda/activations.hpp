// SPDX-License-Identifier: Apache-2.0
#pragma once
// Activations and their gradients of one element in fp32, for host and device: the formulas of host/isa/gelu.cpp and
// swiglu.cpp. On a device exponentials and quotients are the fast ones (__expf, __fdividef: 2 + |1.17·x| and 2 units in
// the last place), so host and device agree to a tolerance, not to the bit.

#include "kernels/cuda/element.hpp"

#if !defined(__CUDACC__)
#include <cmath>
#endif

namespace tessera::kernels::cuda {

TESSERA_HD float exponential(float x) {
#if defined(__CUDA_ARCH__)
  return ::__expf(x);
#else
  return __builtin_expf(x);
#endif
}

/// a / b for |b| below 2^126.
TESSERA_HD float quotient(float a, float b) {
#if defined(__CUDA_ARCH__)
  return ::__fdividef(a, b);
#else
  return a / b;
#endif
}

/// x clamped to [-80, 80]: beyond it a sigmoid is 0 or 1 in fp32, and e·s stays finite.
TESSERA_HD float bounded(float x) { return x > 80.0F ? 80.0F : x > -80.0F ? x : -80.0F; }

/// tanh(x / cap): a soft cap makes cap times it of x, with the slope 1 - tanh².
TESSERA_HD float capped_tangent(float x, float inverse_cap) {
#if defined(__CUDA_ARCH__)
  return ::tanhf(mul(x, inverse_cap));
#else
  return __builtin_tanhf(mul(x, inverse_cap));
#endif
}

inline constexpr float two_sqrt_2_over_pi = 1.59576912160573071176F;
inline constexpr float cubic = 0.044715F;

/// e^(-2u), u = √(2/π)·(x + 0.044715·x³): ½(1 + tanh u) is the sigmoid of 2u.
TESSERA_HD float gelu_exponential(float x) {
  return exponential(-bounded(mul(mul(x, two_sqrt_2_over_pi), fused(mul(x, x), cubic, 1.0F))));
}
TESSERA_HD float gelu(float x) { return quotient(x, add(1.0F, gelu_exponential(x))); }
/// d gelu(x) / dx
TESSERA_HD float gelu_slope(float x) {
  const float e = gelu_exponential(x), s = quotient(1.0F, add(1.0F, e));
  const float slope = mul(two_sqrt_2_over_pi, fused(mul(x, x), 3 * cubic, 1.0F));
  return mul(s, fused(mul(x, slope), mul(e, s), 1.0F));
}
TESSERA_HD float gelu_gradient(float x, float dy) { return mul(dy, gelu_slope(x)); }

TESSERA_HD float swiglu(float gate, float up) {
  return mul(quotient(gate, add(1.0F, exponential(-bounded(gate)))), up);
}

struct SwigluSlopes {
  float gate, up;
};
TESSERA_HD float geglu(float gate, float up) { return mul(gelu(gate), up); }
/// Gradients of dy·gelu(gate)·up.
TESSERA_HD SwigluSlopes geglu_slopes(float gate, float up, float dy) {
  return {mul(mul(dy, up), gelu_slope(gate)), mul(dy, gelu(gate))};
}
/// Gradients of dy·silu(gate)·up.
TESSERA_HD SwigluSlopes swiglu_slopes(float gate, float up, float dy) {
  const float e = exponential(-bounded(gate)), s = quotient(1.0F, add(1.0F, e));
  return {mul(mul(dy, up), mul(s, fused(gate, mul(e, s), 1.0F))), mul(dy, mul(gate, s))};
}

}  // namespace tessera::kernels::cuda
