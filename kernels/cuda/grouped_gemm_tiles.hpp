// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which tile of which group a block computes, from the offsets alone; and the index map of a tile whose rows are the
// depth of the GEMM. For host and device, tested without one.

#include "kernels/cuda/attention_tiles.hpp"

namespace tessera::kernels::cuda {

/// Rows [first, last) of a group that ends at `end`; none if first >= last.
struct RowTile {
  std::int64_t group, first, last;
};

// Tile indices: those of group e begin at offsets[e] / height + e, which ascends, leaves enough for each group and
// needs no sum over groups. Some indices have no tile: fewer than one per group.
TESSERA_HD std::int64_t max_row_tiles(std::int64_t rows, std::int64_t groups, std::int64_t height) {
  return rows / height + groups;
}

TESSERA_HD RowTile row_tile(const std::int32_t* offsets, std::int64_t groups, std::int64_t index, std::int64_t height) {
  std::int64_t low = 0, high = groups;  // low begins at or before `index`, high after it
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    if (offsets[middle] / height + middle <= index) low = middle;
    else high = middle;
  }
  const std::int64_t begin = offsets[low], end = offsets[low + 1],
                     first = begin + (index - (begin / height + low)) * height;
  return {low, first, first + height < end ? first + height : end};
}

// ldmatrix.trans as operand A (16 rows, depth 16) from a tile whose rows are the depth: depth 0-7 of rows 0-7, of rows
// 8-15, then both 8 deeper.
TESSERA_HD int at_row(int lane) { return lane % 8 + lane / 16 * 8; }
TESSERA_HD int at_chunk(int lane) { return lane / 8 % 2; }

}  // namespace tessera::kernels::cuda
