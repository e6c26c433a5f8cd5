// SPDX-License-Identifier: Apache-2.0
// SwiGLU and GeGLU: act(x) = x·s, and its slope s·(1 + x·z'·(1 - s)), with s = sigmoid(z) and 1 - s = e^-z·s. SiLU has
// z = x, and GELU z = 2u (gelu_formula.hpp).
#include "kernels/host/swiglu.hpp"

#include "kernels/host/isa/gelu_formula.hpp"
#include "kernels/host/isa/math.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

struct Silu {
  /// e^-z, clamped: beyond ±80 the sigmoid is within 2e-35 of 0 or 1, and e·s stays finite.
  template <class T, class V>
  [[gnu::always_inline]] static V exp_minus(const V& x) {
    using A = Acc<T>;
    return exp_for<T>(clamp_magnitude(x * static_cast<A>(-exp_unit<T>), static_cast<A>(80 * exp_unit<T>)));
  }
  /// x·z'
  template <class T, class V>
  [[gnu::always_inline]] static V scaled(const V& x) {
    return x;
  }
};

struct Gelu {
  template <class T, class V>
  [[gnu::always_inline]] static V exp_minus(const V& x) {
    return exp_minus_2u<T>(x);
  }
  template <class T, class V>
  [[gnu::always_inline]] static V scaled(const V& x) {
    return x * slope_of_2u<T>(x);
  }
};

template <class Activation, class T>
void forward(const T* gate, const T* up, T* y, std::int64_t n) {
  for_each_group<T, Subnormals::may_be_zero>(
      n, [=](std::int64_t i, const auto& part) __attribute__((always_inline)) {
        const auto v = part.load(gate + i);
        part.store(y + i, quotient_for<T>(v, Acc<T>(1) + Activation::template exp_minus<T>(v)) * part.load(up + i));
      });
}

template <class Activation, class T>
void backward(const T* gate, const T* up, const T* dy, T* dgate, T* dup, std::int64_t n) {
  for_each_group<T, Subnormals::may_be_zero>(
      n, [=](std::int64_t i, const auto& part) __attribute__((always_inline)) {
        const auto v = part.load(gate + i), u = part.load(up + i), d = part.load(dy + i), one = like(v, 1);
        const auto e = Activation::template exp_minus<T>(v);
        const auto s = quotient_for<T>(one, one + e);
        part.store(dgate + i, d * u * (s * madd(Activation::template scaled<T>(v), e * s, one)));
        part.store(dup + i, d * (v * s));
      });
}

}  // namespace

TESSERA_TABLE_DEFINE(Swiglu, swiglu, forward<Silu, T>, backward<Silu, T>)
TESSERA_TABLE_DEFINE(Swiglu, geglu, forward<Gelu, T>, backward<Gelu, T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
