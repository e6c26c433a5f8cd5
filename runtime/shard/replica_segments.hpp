#pragma once
// Which part of a shard each of its replicas writes, so that together they write every byte once. Pure;
// read by checkpoints and by the plan.

#include <cstdint>
#include <vector>

#include "runtime/shard/layout.hpp"

namespace tessera::shard {

/// The pieces of parameters in `shard` of `unit` that fall to `replica` of `replicas`: equal stretches of the shard,
/// cut at multiples of 1024 elements (4 KiB of fp32); unit_offset as in ShardLayout::segments.
[[nodiscard]] std::vector<Segment> replica_segments(const ShardLayout& layout, int unit, int shard, int replica,
                                                    int replicas);
/// Elements of all units' shares of this rank.
[[nodiscard]] std::int64_t replica_numel(const ShardLayout& layout, int shard, int replica, int replicas);

}  // namespace tessera::shard
