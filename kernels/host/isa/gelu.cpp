// SPDX-License-Identifier: Apache-2.0
// GELU, in its tanh form.
#include "kernels/host/gelu.hpp"

#include "kernels/host/isa/gelu_formula.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

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
        const auto v = part.load(x + i), one = like(v, 1);
        const auto e = exp_minus_2u<T>(v);
        const auto s = quotient_for<T>(one, one + e);
        part.store(dx + i, part.load(dy + i) *
                               (s * madd(v * slope_of_2u<T>(v), e * s, one)));  // s + x·s·(1-s)·(2u)', 1-s = e·s
      });
}

}  // namespace

TESSERA_TABLE_DEFINE(Gelu, gelu, forward<T>, backward<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
