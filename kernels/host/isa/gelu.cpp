// SPDX-License-Identifier: Apache-2.0
// GELU (tanh form) by ½(1 + tanh u) = sigmoid(2u), which does not cancel where tanh is near -1.
#include "kernels/host/gelu.hpp"

#include "kernels/host/isa/math.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

constexpr double two_sqrt_2_over_pi = 1.59576912160573071176;
constexpr double cubic = 0.044715;

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

template <class T>
void forward(const T* x, T* y, std::int64_t n) {
  for_each_group<T, Subnormals::may_be_zero>(
      n, [=](std::int64_t i, const auto& part) __attribute__((always_inline)) {
        const auto v = part.load(x + i);
        part.store(y + i, quotient_for<T>(v, Acc<T>(1) + exp_minus_2u<T>(v)));
      });
}

template <class T>
void backward(const T* x, const T* dy, T* dx, std::int64_t n) {
  for_each_group<T, Subnormals::may_be_zero>(
      n, [=](std::int64_t i, const auto& part) __attribute__((always_inline)) {
        using A = Acc<T>;
        const auto v = part.load(x + i), one = like(v, 1);
        const auto e = exp_minus_2u<T>(v);
        const auto s = quotient_for<T>(one, one + e);
        const auto slope =
            static_cast<A>(two_sqrt_2_over_pi) * madd(v * v, like(v, static_cast<A>(3 * cubic)), one);  // d(2u)/dx
        part.store(dx + i, part.load(dy + i) * (s * madd(v * slope, e * s, one)));  // s + x·s·(1-s)·(2u)', 1-s = e·s
      });
}

}  // namespace

TESSERA_TABLE_DEFINE(Gelu, gelu, forward<T>, backward<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
