// SPDX-License-Identifier: Apache-2.0
#pragma once
// The groups of ranks over which a run has collectives. Pure.

#include <vector>

#include "runtime/comm/mesh.hpp"
#include "runtime/shard/schedule.hpp"

namespace tessera::shard {

/// Groups as sets of axes with more than one rank.
struct Groups {
  std::vector<AxisSet> all;   // each once: one communicator for each
  std::vector<AxisSet> norm;  // of them, those that together span the world: norm sums over one after the other

  /// Index in `all`; -1: no group, since the axes have one rank.
  [[nodiscard]] int index_of(AxisSet axes) const;
};

/// The shard groups of all units and the replicate groups of trainable ones (a frozen unit is never reduced), in the
/// order of units, then what norm needs beside them. norm sums over the world at once if that is a group of a unit,
/// else over one axis after the other, the fastest first.
[[nodiscard]] Groups groups_of(const std::vector<ScheduledUnit>& units, const Mesh& mesh);

}  // namespace tessera::shard
