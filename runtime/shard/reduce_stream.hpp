// SPDX-License-Identifier: Apache-2.0
#pragma once
// The stream of an all-reduce: what builder and verifier share about it.

#include <algorithm>
#include <vector>

#include "runtime/base/at.hpp"
#include "runtime/shard/schedule.hpp"

namespace tessera::shard {

/// Where the gradient of a unit of `units` is summed over its replicate axes: on the replicate stream after a
/// reduce_scatter, and of a unit without one too where another unit's all_reduce is there over the same axes, since a
/// communicator is of one stream; else on the reduce stream.
[[nodiscard]] inline StreamId all_reduce_stream(const std::vector<ScheduledUnit>& units, int unit) {
  const AxisSet axes = units[at(unit)].replicate_axes;
  const bool follows = std::ranges::any_of(units, [&](const ScheduledUnit& other) {
    return other.trainable && other.reduced_twice() && other.replicate_axes == axes;
  });
  return follows ? StreamId::replicate : StreamId::reduce;
}

}  // namespace tessera::shard
