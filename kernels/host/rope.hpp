// SPDX-License-Identifier: Apache-2.0
#pragma once
// Table of the rotary kernel: one row of heads, one thread.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

template <class T>
struct Rope {
  /// Rotates `heads` heads of 2·half numbers in place; `sign` is +1, or -1 for the negative angle.
  void (*rotate)(T* x, const Acc<T>* cosines, const Acc<T>* sines, std::int64_t heads, std::int64_t half, Acc<T> sign);
};
TESSERA_TABLE(Rope, rope)

}  // namespace tessera::kernels::host
