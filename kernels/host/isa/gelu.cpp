// SPDX-License-Identifier: Apache-2.0
// GELU (tanh form) by ½(1 + tanh u) = sigmoid(2u), which does not cancel where tanh is near -1.
#include "kernels/host/gelu.hpp"

#include "kernels/host/isa/math.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

constexpr double two_sqrt_2_over_pi = 1.59576912160573071176;
constexpr double cubic = 0.044715;

/// e^(-2u), clamped: beyond ±80 the sigmoid is 0 or 1 in the result, and e·s stays finite.
template <class V>
inline V exp_minus_2u(V x) {
  using N = Number<V>;
  const V u2 = x * static_cast<N>(two_sqrt_2_over_pi) * madd(x * x, all<V>(static_cast<N>(cubic)), all<V>(1));
  return exp_bounded(-clamp_magnitude(u2, N(80)));
}

template <class T>
void forward(const T* x, T* y, std::int64_t n) {
  for_each_register<T>(n, [=](std::int64_t i, const auto& part) {
    const Vec<T> v = part.load(x + i);
    part.store(y + i, v / (Acc<T>(1) + exp_minus_2u(v)));
  });
}

template <class T>
void backward(const T* x, const T* dy, T* dx, std::int64_t n) {
  using A = Acc<T>;
  using V = Vec<T>;
  for_each_register<T>(n, [=](std::int64_t i, const auto& part) {
    const V v = part.load(x + i), one = all<V>(1);
    const V e = exp_minus_2u(v);
    const V s = one / (one + e);
    const V slope =
        static_cast<A>(two_sqrt_2_over_pi) * madd(v * v, all<V>(static_cast<A>(3 * cubic)), one);  // d(2u)/dx
    part.store(dx + i, part.load(dy + i) * (s * madd(v * slope, e * s, one)));  // s + x·s·(1-s)·(2u)', 1-s = e·s
  });
}

}  // namespace

TESSERA_TABLE_DEFINE(Gelu, gelu, forward<T>, backward<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
