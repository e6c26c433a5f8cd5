// SPDX-License-Identifier: Apache-2.0
#include "runtime/shard/replica_segments.hpp"

#include <algorithm>

namespace tessera::shard {

std::vector<Segment> replica_segments(const ShardLayout& layout, int unit, int rank) {
  const std::int64_t shard = layout.shard_of(unit, rank), replica = layout.replica_of(unit, rank),
                     replicas = layout.num_replicas(unit);
  constexpr std::int64_t grain = 1024;
  const std::int64_t length = layout.shard_numel(unit), begin = shard * length, grains = (length + grain - 1) / grain;
  const std::int64_t first = begin + std::min(length, grains * replica / replicas * grain);
  const std::int64_t last = begin + std::min(length, grains * (replica + 1) / replicas * grain);
  std::vector<Segment> segments;
  for (Segment s : layout.segments(unit, static_cast<int>(shard))) {
    const std::int64_t from = std::max(first, s.unit_offset), to = std::min(last, s.unit_offset + s.length);
    if (from >= to) continue;
    s.param_offset += from - s.unit_offset;
    s.unit_offset = from;
    s.length = to - from;
    segments.push_back(s);
  }
  return layout.whole(segments, layout.part_of(unit, rank));
}

std::size_t replica_bytes(const ShardLayout& layout, std::span<const StateSpec> states, int rank) {
  std::size_t bytes = 0;
  for (int u = 0; u < layout.num_units(); ++u)
    for (const Segment& s : replica_segments(layout, u, rank)) {
      bytes += static_cast<std::size_t>(s.length) * size_of(layout.storage_dtype(u));
      if (!layout.trainable(u)) continue;
      for (const StateSpec& state : states) bytes += state.bytes(s.length);
    }
  return bytes;
}

}  // namespace tessera::shard
