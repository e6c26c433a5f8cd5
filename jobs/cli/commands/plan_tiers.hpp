// SPDX-License-Identifier: Apache-2.0
#pragma once
// `tessera plan`: the chosen strategy with states and activations on the GPU, in host memory and on disk, side by side.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/plan/plan.hpp"

namespace tessera::jobs {

/// A placement of states and activations, and what a run takes with it.
struct TierRow {
  const char* name = "";  // "resident", "optimizer on the CPU", …
  std::string options;    // "--offload_optimizer cpu"
  // Bytes of a rank: in the memory that it computes in; in host memory beside a GPU; in its scratch file.
  std::size_t computing = 0, host = 0, disk = 0;
  plan::MovedBytes moved;  // in a step
  bool chosen = false;
  /// Least seconds of a step for the copies over the link in the busier direction (0 with a disk, whose speed is its
  /// own), and for the updates on the host.
  [[nodiscard]] double link_s() const;
  [[nodiscard]] double host_s() const;
};

/// Of a training plan. Without the row of parameters on the CPU where the strategy does not shard them. One row is the
/// chosen one: the last, "as chosen", if the usual ones are others. `offloaded`: when gradients are reduced where they
/// are offloaded, which decide_reduction may leave to the default.
[[nodiscard]] std::vector<TierRow> tier_rows(const plan::RunPlan& chosen, shard::Reduce offloaded);
/// `device_memory`: 0, or bytes that a rank may use: then rows say whether they fit.
void print_tiers(const std::vector<TierRow>& rows, std::uint64_t device_memory);
[[nodiscard]] nlohmann::ordered_json tiers_json(const std::vector<TierRow>& rows);

}  // namespace tessera::jobs
