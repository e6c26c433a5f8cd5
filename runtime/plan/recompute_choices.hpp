// SPDX-License-Identifier: Apache-2.0
#pragma once
// What gradient checkpointing costs a run in its four forms, and the choice of --gradient_checkpointing auto. Pure.

#include <cstdint>
#include <vector>

#include "runtime/plan/plan.hpp"

namespace tessera::plan {

/// A run with one form of checkpointing.
struct RecomputeChoice {
  shard::Recompute recompute = shard::Recompute::none;
  Costs costs;
  std::size_t needed = 0;            // memory_needed
  std::size_t host_activations = 0;  // of costs.memory: offloaded, in host memory beside what the run computes in
};

/// The run with keep_all, none, selective and full, in the order of the FLOPs that they add: in that order of predicted
/// time. keep_all and none have the same FLOPs, and keep_all less of other work.
[[nodiscard]] std::vector<RecomputeChoice> recompute_choices(const RunSpec& spec);

/// The first that needs at most `limit` bytes; if none does, the one that needs the least.
[[nodiscard]] const RecomputeChoice& choose_recompute(const std::vector<RecomputeChoice>& choices, std::uint64_t limit);

}  // namespace tessera::plan
