// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the packing of a matrix product reads: a matrix as lines (rows of A, columns of B) of some depth.

#include <cstdint>

namespace tessera::kernels::host {

/// `along`: the k's of a line follow one another in memory, lines are ld apart; `across`: the lines follow one
/// another, and the k's are ld apart.
enum class KOrder : unsigned char { along, across };

template <class T>
struct PanelSource {
  const T* data;
  std::int64_t ld, lines, depth;
  KOrder order;
};

}  // namespace tessera::kernels::host
