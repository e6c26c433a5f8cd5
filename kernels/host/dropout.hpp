// SPDX-License-Identifier: Apache-2.0
#pragma once
// Table of dropout: rows, one thread.

#include <cstdint>

#include "kernels/dropout.hpp"
#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

template <class T>
struct Dropout {
  /// y = mask·x·scale, or y += it, of a row of n columns, whose number is `row`.
  void (*row)(const T* x, T* y, std::int64_t n, std::uint64_t key, std::uint64_t row, const DropoutMask& mask,
              bool accumulate);
};
TESSERA_TABLE(Dropout, dropout)

}  // namespace tessera::kernels::host
