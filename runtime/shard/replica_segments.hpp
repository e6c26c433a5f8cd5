// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which part of a shard each of its replicas saves, so that together they write every byte once. Pure; used by
// checkpoints and by the plan.

#include <cstdint>
#include <vector>

#include "runtime/shard/layout.hpp"

namespace tessera::shard {

/// The segments of its shard of `unit` that `rank` saves: of R replicas each an equal part of the shard, with
/// boundaries at multiples of 1024 elements (4 KiB of fp32); as ShardLayout::whole_segments.
[[nodiscard]] std::vector<Segment> replica_segments(const ShardLayout& layout, int unit, int rank);
/// Bytes that `rank` saves of all units: parameters as they are kept, and these optimizer states.
[[nodiscard]] std::size_t replica_bytes(const ShardLayout& layout, std::span<const StateSpec> states, int rank);

}  // namespace tessera::shard
