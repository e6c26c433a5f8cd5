// SPDX-License-Identifier: Apache-2.0
// SwiGLU: silu(x) = x / (1 + e^-x), and its slope s·(1 + x·(1 - s)) with s the sigmoid and 1 - s = e^-x·s.
#include "kernels/host/swiglu.hpp"

#include "kernels/host/isa/math.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

/// e^-x, clamped: beyond ±80 the sigmoid is within 2e-35 of 0 or 1, and e·s stays finite.
template <class T, class V>
[[gnu::always_inline]] inline V exp_minus(const V& x) {
  using A = Acc<T>;
  return exp_for<T>(clamp_magnitude(x * static_cast<A>(-exp_unit<T>), static_cast<A>(80 * exp_unit<T>)));
}

template <class T>
void forward(const T* gate, const T* up, T* y, std::int64_t n) {
  for_each_group<T, Subnormals::may_be_zero>(
      n, [=](std::int64_t i, const auto& part) __attribute__((always_inline)) {
        const auto v = part.load(gate + i);
        part.store(y + i, quotient_for<T>(v, Acc<T>(1) + exp_minus<T>(v)) * part.load(up + i));
      });
}

template <class T>
void backward(const T* gate, const T* up, const T* dy, T* dgate, T* dup, std::int64_t n) {
  for_each_group<T, Subnormals::may_be_zero>(
      n, [=](std::int64_t i, const auto& part) __attribute__((always_inline)) {
        const auto v = part.load(gate + i), u = part.load(up + i), d = part.load(dy + i), one = like(v, 1);
        const auto e = exp_minus<T>(v);
        const auto s = quotient_for<T>(one, one + e);
        part.store(dgate + i, d * u * (s * madd(v, e * s, one)));
        part.store(dup + i, d * (v * s));
      });
}

}  // namespace

TESSERA_TABLE_DEFINE(Swiglu, swiglu, forward<T>, backward<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
