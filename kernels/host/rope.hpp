// SPDX-License-Identifier: Apache-2.0
#pragma once
// Table of the rotary kernel: one row of heads, one thread.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

template <class T>
struct Rope {
  /// Heads of a row: `count` of `dim` numbers, of which the first 2·half are rotated.
  struct Heads {
    std::int64_t count, dim, half;
  };
  /// Rotates in place; `sign` is +1, or -1 for the negative angle.
  void (*rotate)(T* x, const Acc<T>* cosines, const Acc<T>* sines, const Heads& heads, Acc<T> sign);
  /// The same of pairs (2j, 2j + 1).
  void (*rotate_interleaved)(T* x, const Acc<T>* cosines, const Acc<T>* sines, const Heads& heads, Acc<T> sign);
};
TESSERA_TABLE(Rope, rope)

}  // namespace tessera::kernels::host
