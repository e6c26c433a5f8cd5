// SPDX-License-Identifier: Apache-2.0
// Rotary positions: pairs (j, j + half) of each head.
#include "kernels/host/rope.hpp"

#include "kernels/host/isa/math.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

template <class T>
void rotate(T* x, const Acc<T>* cosines, const Acc<T>* sines, const typename Rope<T>::Heads& heads, Acc<T> sign) {
  const std::int64_t half = heads.half;
  for (std::int64_t h = 0; h < heads.count; ++h, x += heads.dim) {
    T *low = x, *high = x + half;
    for_each_register<T>(half, [=](std::int64_t j, const auto& part) {
      const Vec<T> a = part.load(low + j), b = part.load(high + j), c = part.load(cosines + j),
                   s = sign * part.load(sines + j);
      part.store(low + j, madd(a, c, -(b * s)));
      part.store(high + j, madd(b, c, a * s));
    });
  }
}

}  // namespace

TESSERA_TABLE_DEFINE(Rope, rope, rotate<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
