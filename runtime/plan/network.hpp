// SPDX-License-Identifier: Apache-2.0
#pragma once
// Bytes that the collectives of a step send: by one rank, by the busiest rank, and by a node to other nodes.

#include "runtime/plan/plan.hpp"

namespace tessera::plan {

/// What `rank` sends in one pass through plan.main(), a training step or a pass of inference, by group
/// (RunPlan::groups).
[[nodiscard]] std::vector<TrafficCount> step_traffic(const RunPlan& plan, int rank);

/// The same as loads of the network (see AxisLoad), over all ranks of the mesh: along the axes over which units are
/// sharded, along the others, and along those of exchanges.
struct NetworkLoad {
  AxisLoad shard_axis, replicate_axis, exchange;
};
[[nodiscard]] NetworkLoad network_load(const RunPlan& plan);

}  // namespace tessera::plan
