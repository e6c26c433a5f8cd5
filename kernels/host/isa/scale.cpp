// SPDX-License-Identifier: Apache-2.0
// Factors and soft caps of elements.
#include "kernels/host/scale.hpp"

#include "kernels/host/isa/math.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

template <class T>
void scale_elements(T* x, Acc<T> factor, std::int64_t n) {
  for_each_register<T>(n, [=](std::int64_t i, const auto& part) { part.store(x + i, part.load(x + i) * factor); });
}

template <class T>
void cap_elements(T* x, Acc<T> cap, std::int64_t n) {
  for_each_register<T>(
      n, [=](std::int64_t i, const auto& part) { part.store(x + i, cap * tanh(part.load(x + i) / cap)); });
}

}  // namespace

TESSERA_TABLE_DEFINE(Scale, scales, scale_elements<T>, cap_elements<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
