// SPDX-License-Identifier: Apache-2.0
#pragma once
// The elements that each block of an optimizer's launch over a shard takes.

#include "kernels/cuda/element.hpp"
#include "kernels/update.hpp"

namespace tessera::kernels::cuda {

/// Elements of a block: enough to pay for the double divisions of the constants, which every block does.
inline constexpr std::int64_t update_tile_elements = 8192;

/// Segments as a kernel argument (at most 4 KiB). Segment i is cut into tiles from first_tile on, at multiples of
/// update_tile_elements of the shard, so that only the ends of a segment are unaligned.
struct UpdateTable {
  static constexpr int most = 64;
  struct Row {
    UpdateSegment segment;
    int first_tile = 0;
  };
  Row rows[most];
  int count = 0, tiles = 0;
};

/// The table of the first non-empty segments, as many as fit; removes them from the front of `segments`.
inline UpdateTable take_update_table(std::span<const UpdateSegment>& segments) {
  UpdateTable table;
  for (; !segments.empty() && table.count < UpdateTable::most; segments = segments.subspan(1)) {
    const UpdateSegment& s = segments.front();
    if (s.begin == s.end) continue;
    table.rows[table.count++] = {s, table.tiles};
    table.tiles += static_cast<int>((s.end - 1) / update_tile_elements - s.begin / update_tile_elements) + 1;
  }
  return table;
}

/// Elements [first, last) of the shard, all of one segment.
struct UpdateTile {
  std::int64_t first, last;
  double lr_factor, weight_decay;
};
TESSERA_HD UpdateTile update_tile(const UpdateTable& table, int tile) {
  int low = 0, high = table.count - 1;  // the last row whose first tile is not after this one
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (table.rows[middle].first_tile <= tile) low = middle;
    else high = middle - 1;
  }
  const UpdateTable::Row& row = table.rows[low];
  const UpdateSegment& s = row.segment;
  const std::int64_t first = (s.begin / update_tile_elements + (tile - row.first_tile)) * update_tile_elements;
  const std::int64_t last = first + update_tile_elements;
  return {first > s.begin ? first : s.begin, last < s.end ? last : s.end, s.lr_factor, s.weight_decay};
}

/// Elements [from, to) of a tile are whole vectors of n, at multiples of n of the shard; the others, fewer than 2·n,
/// are handled one by one.
struct UpdateRuns {
  std::int64_t from, to;
  /// The i-th single element; at least the tile's last if there are fewer.
  TESSERA_HD std::int64_t single(const UpdateTile& tile, std::int64_t i) const {
    const std::int64_t at = tile.first + i;
    return at < from ? at : at + (to - from);
  }
};
TESSERA_HD UpdateRuns update_runs(const UpdateTile& tile, std::int64_t n) {
  const std::int64_t first = (tile.first + n - 1) / n * n, last = tile.last / n * n;
  const std::int64_t from = first < tile.last ? first : tile.last;
  return {from, last > from ? last : from};
}

}  // namespace tessera::kernels::cuda
