#pragma once
// AdamW of one element as kernels/adamw.hpp defines it, for host and device, with the same bits; and the elements that
// each block of the launch over a shard takes.

#include "kernels/adamw.hpp"
#include "kernels/cuda/element.hpp"

namespace tessera::kernels::cuda {

/// Constants of a step: computed in double, rounded once.
struct AdamWConstants {
  float keep, rate, beta2, blend1, blend2, sqrt_correction2, eps, clip;
};

TESSERA_HD AdamWConstants adamw_constants(const AdamWScalars& s, bool decay) {
  return {.keep = decay ? static_cast<float>(sub(1.0, mul(s.learning_rate, s.weight_decay))) : 1.0F,
          .rate = static_cast<float>(div(s.learning_rate, s.bias_correction1)),
          .beta2 = static_cast<float>(s.beta2),
          .blend1 = static_cast<float>(sub(1.0, s.beta1)),
          .blend2 = static_cast<float>(sub(1.0, s.beta2)),
          .sqrt_correction2 = static_cast<float>(s.sqrt_bias_correction2),
          .eps = static_cast<float>(s.eps),
          .clip = static_cast<float>(s.clip)};
}

TESSERA_HD void adamw_element(const AdamWConstants& s, float grad, float& param, float& exp_avg, float& exp_avg_sq) {
  const float g = mul(s.clip, grad), p = mul(param, s.keep);
  const float m = fused(s.blend1, sub(g, exp_avg), exp_avg);
  const float v = fused(s.blend2, mul(g, g), mul(s.beta2, exp_avg_sq));
  const float denominator = add(div(root(v), s.sqrt_correction2), s.eps);
  exp_avg = m;
  exp_avg_sq = v;
  param = fused(-s.rate, div(m, denominator), p);
}

/// Elements of a block: enough to pay for the double divisions of the constants, which every block does.
inline constexpr std::int64_t adamw_tile_elements = 8192;

/// Segments as a kernel argument (at most 4 KiB). Segment i is cut into tiles from first_tile on, at multiples of
/// adamw_tile_elements of the shard, so that only the ends of a segment are unaligned.
struct AdamWTable {
  static constexpr int most = 64;
  struct Row {
    std::int64_t begin = 0, end = 0;
    int first_tile = 0;
    bool decay = true;
  };
  Row rows[most];
  int count = 0, tiles = 0;
};

/// The table of the first non-empty segments, as many as fit; removes them from the front of `segments`.
inline AdamWTable take_adamw_table(std::span<const AdamWSegment>& segments) {
  AdamWTable table;
  for (; !segments.empty() && table.count < AdamWTable::most; segments = segments.subspan(1)) {
    const AdamWSegment& s = segments.front();
    if (s.begin == s.end) continue;
    table.rows[table.count++] = {s.begin, s.end, table.tiles, s.decay};
    table.tiles += static_cast<int>((s.end - 1) / adamw_tile_elements - s.begin / adamw_tile_elements) + 1;
  }
  return table;
}

/// Elements [first, last) of the shard, all of one segment.
struct AdamWTile {
  std::int64_t first, last;
  bool decay;
};
TESSERA_HD AdamWTile adamw_tile(const AdamWTable& table, int tile) {
  int low = 0, high = table.count - 1;  // the last row whose first tile is not after this one
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (table.rows[middle].first_tile <= tile) low = middle;
    else high = middle - 1;
  }
  const AdamWTable::Row& row = table.rows[low];
  const std::int64_t first = (row.begin / adamw_tile_elements + (tile - row.first_tile)) * adamw_tile_elements;
  const std::int64_t last = first + adamw_tile_elements;
  return {first > row.begin ? first : row.begin, last < row.end ? last : row.end, row.decay};
}

/// Elements [from, to) of a tile are whole vectors of n, at multiples of n of the shard; the others, fewer than 2·n,
/// are handled one by one.
struct AdamWRuns {
  std::int64_t from, to;
  /// The i-th single element; at least the tile's last if there are fewer.
  TESSERA_HD std::int64_t single(const AdamWTile& tile, std::int64_t i) const {
    const std::int64_t at = tile.first + i;
    return at < from ? at : at + (to - from);
  }
};
TESSERA_HD AdamWRuns adamw_runs(const AdamWTile& tile, std::int64_t n) {
  const std::int64_t first = (tile.first + n - 1) / n * n, last = tile.last / n * n;
  const std::int64_t from = first < tile.last ? first : tile.last;
  return {from, last > from ? last : from};
}

}  // namespace tessera::kernels::cuda
