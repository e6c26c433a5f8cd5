// SPDX-License-Identifier: Apache-2.0
#pragma once
// The groups of ranks over which a run has collectives. Pure.

#include <vector>

#include "runtime/comm/mesh.hpp"
#include "runtime/shard/schedule.hpp"

namespace tessera::shard {

/// Groups as sets of axes with more than one rank.
struct Groups {
  /// A communicator for each. First those of units and norm, each once; then those of exchanges, each once: an exchange
  /// is on a stream of its own, and shares no communicator with gathers and sums.
  std::vector<AxisSet> all;
  std::size_t first_exchange = 0;  // index in `all`
  std::vector<AxisSet> norm;       // of them, those that together span the world: norm sums over one after the other

  /// Index in `all` of a group of units; -1: no group, since the axes have one rank.
  [[nodiscard]] int index_of(AxisSet axes) const;
  /// The same of a group of exchanges.
  [[nodiscard]] int exchange_index_of(AxisSet axes) const;
};

/// The shard groups of all units and the replicate groups of trainable ones (a frozen unit is never reduced), in the
/// order of units, then what norm needs beside them. norm sums over the world at once if that is a group of a unit,
/// else over one axis after the other, the fastest first. Then the groups of the exchanges of modules and of reference
/// models.
[[nodiscard]] Groups groups_of(const std::vector<ScheduledUnit>& units, const Mesh& mesh,
                               const std::vector<ModuleUse>& modules = {},
                               const std::vector<ReferenceModel>& references = {});

}  // namespace tessera::shard
