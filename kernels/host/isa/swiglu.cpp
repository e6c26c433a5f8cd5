// SPDX-License-Identifier: Apache-2.0
// SwiGLU: silu(x) = x / (1 + e^-x), and its slope s·(1 + x·(1 - s)) with s the sigmoid and 1 - s = e^-x·s.
#include "kernels/host/swiglu.hpp"

#include "kernels/host/isa/math.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

/// e^-x, clamped: beyond ±80 the sigmoid is 0 or 1 in the result, and e·s stays finite.
template <class V>
inline V exp_minus(V x) {
  return exp_bounded(-clamp_magnitude(x, Number<V>(80)));
}

template <class T>
void forward(const T* gate, const T* up, T* y, std::int64_t n) {
  for_each_register<T>(n, [=](std::int64_t i, const auto& part) {
    const Vec<T> v = part.load(gate + i);
    part.store(y + i, v / (Acc<T>(1) + exp_minus(v)) * part.load(up + i));
  });
}

template <class T>
void backward(const T* gate, const T* up, const T* dy, T* dgate, T* dup, std::int64_t n) {
  for_each_register<T>(n, [=](std::int64_t i, const auto& part) {
    using V = Vec<T>;
    const V v = part.load(gate + i), u = part.load(up + i), d = part.load(dy + i), one = all<V>(1);
    const V e = exp_minus(v);
    const V s = one / (one + e);
    part.store(dgate + i, d * u * (s * madd(v, e * s, one)));
    part.store(dup + i, d * (v * s));
  });
}

}  // namespace

TESSERA_TABLE_DEFINE(Swiglu, swiglu, forward<T>, backward<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
