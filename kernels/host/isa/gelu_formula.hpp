// SPDX-License-Identifier: Apache-2.0
#pragma once
// GELU (tanh form) by ½(1 + tanh u) = sigmoid(2u), which does not cancel where tanh is near -1: for the kernels of GELU
// and GeGLU. Internal linkage.

#include "kernels/host/isa/math.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

inline constexpr double two_sqrt_2_over_pi = 1.59576912160573071176;
inline constexpr double cubic = 0.044715;

/// e^(-2u), clamped: beyond ±80 the sigmoid is within 2e-35 of 0 or 1, and e·s stays finite. In 16 bits with one
/// multiplication less; fp32 keeps the order that its bits come from.
template <class T, class V>
[[gnu::always_inline]] inline V exp_minus_2u(const V& x) {
  using A = Acc<T>;
  constexpr double factor = -two_sqrt_2_over_pi * exp_unit<T>;
  const V square = x * x;
  V minus_2u;
  if constexpr (is_half<T>)
    minus_2u = x * madd(square, all<V>(static_cast<A>(cubic * factor)), all<V>(static_cast<A>(factor)));
  else minus_2u = x * static_cast<A>(factor) * madd(square, all<V>(static_cast<A>(cubic)), all<V>(1));
  return exp_for<T>(clamp_magnitude(minus_2u, static_cast<A>(80 * exp_unit<T>)));
}

/// d(2u)/dx
template <class T, class V>
[[gnu::always_inline]] inline V slope_of_2u(const V& x) {
  using A = Acc<T>;
  return static_cast<A>(two_sqrt_2_over_pi) * madd(x * x, like(x, static_cast<A>(3 * cubic)), like(x, 1));
}

}  // namespace
}  // namespace tessera::kernels::host::TESSERA_ISA
