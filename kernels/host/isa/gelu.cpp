// SPDX-License-Identifier: Apache-2.0
// GELU (tanh form) by ½(1 + tanh u) = sigmoid(2u), which does not cancel where tanh is near -1.
#include "kernels/host/gelu.hpp"

#include "kernels/host/isa/math.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

constexpr double two_sqrt_2_over_pi = 1.59576912160573071176;
constexpr double cubic = 0.044715;

/// e^(-2u), clamped: beyond ±80 the sigmoid is 0 or 1 in the result, and e·s stays finite.
template <class T>
inline T exp_minus_2u(T x) {
  const T u2 = x * static_cast<T>(two_sqrt_2_over_pi) * madd(x * x, static_cast<T>(cubic), T(1));
  return exp_bounded(-clamp_magnitude(u2, T(80)));
}

template <class T>
void forward(const T* x, T* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const Acc<T> v = widen(x[i]);
    put(y[i], v / (Acc<T>(1) + exp_minus_2u(v)));
  }
}

template <class T>
void backward(const T* x, const T* dy, T* dx, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    using A = Acc<T>;
    const A v = widen(x[i]);
    const A e = exp_minus_2u(v);
    const A s = A(1) / (A(1) + e);
    const A slope = static_cast<A>(two_sqrt_2_over_pi) * madd(v * v, static_cast<A>(3 * cubic), A(1));  // d(2u)/dx
    put(dx[i], widen(dy[i]) * (s * madd(v * slope, e * s, A(1))));  // s + x·s·(1-s)·(2u)', 1-s = e·s
  }
}

}  // namespace

TESSERA_TABLE_DEFINE(Gelu, gelu, forward<T>, backward<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
