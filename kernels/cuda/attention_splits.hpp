// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the keys of attention over a cache are split over blocks of a device: a function of shapes, so that the order of
// sums and the workspace are known before a run, whatever the rows' lengths.

#include <algorithm>

#include "kernels/attention.hpp"

namespace tessera::kernels::cuda {

inline constexpr int split_keys = 4;                   // that a group of lanes reads at once
inline constexpr std::int64_t most_split_tasks = 256;  // (row, KV head, split): about two blocks of 128 threads per SM
inline constexpr std::int64_t most_splits = 64;        // of a row, which one block merges

/// Keys that a block reads at once, heads of up to `width` (64, 128 or 256) elements of `element_bytes`.
[[nodiscard]] constexpr std::int64_t split_tile(std::int64_t width, std::size_t element_bytes) {
  const std::int64_t lanes = std::min<std::int64_t>(32, width * static_cast<std::int64_t>(element_bytes) / 16);
  return 128 / lanes * split_keys;
}

struct AttentionSplits {
  int count = 1;          // tile i is in split i mod count
  std::int64_t tile = 0;  // keys
  /// Bytes of the partial results, if there are several splits.
  [[nodiscard]] std::size_t workspace(const AttentionShape& s) const {
    return static_cast<std::size_t>(s.batch * s.tokens * s.heads * count * (s.head_dim + 2)) * sizeof(float);
  }
};

[[nodiscard]] inline AttentionSplits splits_of(const AttentionShape& s, std::int64_t capacity,
                                               std::size_t element_bytes) {
  const std::int64_t width = s.head_dim <= 64 ? 64 : s.head_dim <= 128 ? 128 : 256;
  const std::int64_t tile = split_tile(width, element_bytes), tiles = (capacity + tile - 1) / tile;
  const std::int64_t room = most_split_tasks / (s.batch * s.tokens * s.kv_heads);
  return {static_cast<int>(std::clamp<std::int64_t>(room, 1, std::min(tiles, most_splits))), tile};
}

/// Bytes that suffice for any capacity, and for fewer rows of the same heads: count·rows·kv_heads is at most
/// most_split_tasks where there is more than one split.
[[nodiscard]] inline std::size_t most_split_workspace(const AttentionShape& s) {
  return static_cast<std::size_t>(most_split_tasks * (s.heads / s.kv_heads) * (s.head_dim + 2)) * sizeof(float);
}

}  // namespace tessera::kernels::cuda
