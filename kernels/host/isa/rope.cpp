// SPDX-License-Identifier: Apache-2.0
// Rotary positions: pairs (j, j + half) of each head, or (2j, 2j + 1).
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

template <class T>
void rotate_interleaved(T* x, const Acc<T>* cosines, const Acc<T>* sines, const typename Rope<T>::Heads& heads,
                        Acc<T> sign) {
  for (std::int64_t h = 0; h < heads.count; ++h, x += heads.dim)
    for (std::int64_t j = 0; j < heads.half; ++j) {
      const auto a = static_cast<Acc<T>>(x[2 * j]), b = static_cast<Acc<T>>(x[2 * j + 1]);
      const Acc<T> c = cosines[j], s = sign * sines[j];
      x[2 * j] = static_cast<T>(a * c - b * s);
      x[2 * j + 1] = static_cast<T>(b * c + a * s);
    }
}

}  // namespace

TESSERA_TABLE_DEFINE(Rope, rope, rotate<T>, rotate_interleaved<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
