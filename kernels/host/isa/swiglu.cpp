// SPDX-License-Identifier: Apache-2.0
// SwiGLU: silu(x) = x / (1 + e^-x), and its slope s·(1 + x·(1 - s)) with s the sigmoid and 1 - s = e^-x·s.
#include "kernels/host/swiglu.hpp"

#include "kernels/host/isa/math.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

/// e^-x, clamped: beyond ±80 the sigmoid is 0 or 1 in the result, and e·s stays finite.
template <class T>
inline T exp_minus(T x) {
  return exp_bounded(-clamp_magnitude(x, T(80)));
}

template <class T>
void forward(const T* gate, const T* up, T* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const Acc<T> v = widen(gate[i]);
    put(y[i], v / (Acc<T>(1) + exp_minus(v)) * widen(up[i]));
  }
}

template <class T>
void backward(const T* gate, const T* up, const T* dy, T* dgate, T* dup, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    using A = Acc<T>;
    const A v = widen(gate[i]), u = widen(up[i]), d = widen(dy[i]);
    const A e = exp_minus(v);
    const A s = A(1) / (A(1) + e);
    put(dgate[i], d * u * (s * madd(v, e * s, A(1))));
    put(dup[i], d * (v * s));
  }
}

}  // namespace

TESSERA_TABLE_DEFINE(Swiglu, swiglu, forward<T>, backward<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
