// SPDX-License-Identifier: Apache-2.0
// GeGLU: gelu(x) = x·s with s = sigmoid(2u), and its slope s·(1 + x·(2u)'·(1 - s)), 1 - s = e^-2u·s.
#include "kernels/host/isa/gelu_formula.hpp"
#include "kernels/host/swiglu.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

template <class T>
void geglu_forward(const T* gate, const T* up, T* y, std::int64_t n) {
  for_each_group<T, Subnormals::may_be_zero>(
      n, [=](std::int64_t i, const auto& part) __attribute__((always_inline)) {
        const auto v = part.load(gate + i);
        part.store(y + i, quotient_for<T>(v, Acc<T>(1) + exp_minus_2u<T>(v)) * part.load(up + i));
      });
}

template <class T>
void geglu_backward(const T* gate, const T* up, const T* dy, T* dgate, T* dup, std::int64_t n) {
  for_each_group<T, Subnormals::may_be_zero>(
      n, [=](std::int64_t i, const auto& part) __attribute__((always_inline)) {
        const auto v = part.load(gate + i), u = part.load(up + i), d = part.load(dy + i), one = like(v, 1);
        const auto e = exp_minus_2u<T>(v);
        const auto s = quotient_for<T>(one, one + e);
        part.store(dgate + i, d * u * (s * madd(v * slope_of_2u<T>(v), e * s, one)));
        part.store(dup + i, d * (v * s));
      });
}

}  // namespace

TESSERA_TABLE_DEFINE(Swiglu, geglu, geglu_forward<T>, geglu_backward<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
