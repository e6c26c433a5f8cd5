// SPDX-License-Identifier: Apache-2.0
#pragma once
// `tessera plan`: the same run by sizes of the context and tensor axes, side by side.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "jobs/cli/commands/commands.hpp"
#include "runtime/plan/network.hpp"

namespace tessera::jobs {

/// The run with so many ranks that share rows, and that have parts of the same matrices.
struct AxesRow {
  int context = 1, tensor = 1;
  std::int64_t micro_batch = 0;  // rows
  plan::Costs costs;
  plan::NetworkLoad load;
  std::size_t needed = 0;  // plan::memory_needed
  double flops = 0;        // of a step, of the rank with the most rows, with what is recomputed
  bool chosen = false;
  std::string refused;  // why the run could not have these sizes; "": it could
};
/// What activations are exchanged for: "ulysses", "parts of matrices", or both.
[[nodiscard]] std::string exchanges_of(const plan::RunSpec& spec);
/// Of powers of two whose product is at most a node's ranks, and of the sizes that `chosen` has; with its strategy,
/// lengths and global batch, and its micro-batch, or a smaller one where the global batch has no more for a group.
[[nodiscard]] std::vector<AxesRow> axes_rows(const PlanOf& of, const plan::RunPlan& chosen);
/// `device_memory`: 0: not given.
void print_axes(const std::vector<AxesRow>& rows, std::uint64_t device_memory);
[[nodiscard]] nlohmann::ordered_json axes_json(const std::vector<AxesRow>& rows);

}  // namespace tessera::jobs
