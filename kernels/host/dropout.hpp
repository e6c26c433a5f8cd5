// SPDX-License-Identifier: Apache-2.0
#pragma once
// Table of dropout: rows, one thread.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

struct DropoutMask {
  std::uint64_t key = 0;
  std::uint16_t threshold = 0;  // the smallest random number that is kept
  double scale = 1;             // of what is kept
};

template <class T>
struct Dropout {
  /// y = mask·x·scale, or y += it, of a row of n columns, whose random numbers are those of counters from `counter` on.
  void (*row)(const T* x, T* y, std::int64_t n, std::uint64_t counter, const DropoutMask& mask, bool accumulate);
};
TESSERA_TABLE(Dropout, dropout)

}  // namespace tessera::kernels::host
