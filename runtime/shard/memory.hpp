// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arena slots of sharded parameters, gradients and optimizer states. Pure: the planner adds them up, the arena
// allocates them, the shard manager uses them.

#include <cstddef>
#include <vector>

#include "kernels/gemm.hpp"
#include "kernels/step.hpp"
#include "runtime/base/arena.hpp"
#include "runtime/comm/topology.hpp"
#include "runtime/shard/groups.hpp"
#include "runtime/shard/layout.hpp"
#include "runtime/shard/schedule.hpp"

namespace tessera::shard {

/// The arena's slot of a parameter slot, gradient slot, sum slot or staging slot of a schedule.
[[nodiscard]] SlotId slot_id(const Schedule& schedule, int slot);
/// Whether a unit has a low-precision copy on the host, which an update writes and a fetch reads (SlotUse::host_copy);
/// false: a fetch of params reads the master weights, which have the type of the shard.
/// Master weights on disk have one too, unless the params are on disk as well.
[[nodiscard]] bool has_host_copy(const ScheduledUnit& unit);
/// Where a staging slot has what an update works on: offsets in bytes, on pages, as direct reads of a disk want them.
/// What the update reaches in its tier is not there: grad and copy are -1 then.
struct StagedUpdate {
  StagedUpdate(const ScheduledUnit& unit, std::int64_t shard_numel, std::span<const StateSpec> states);
  std::size_t master = 0, bytes = 0;  // bytes: of the whole
  std::vector<std::size_t> states;
  std::int64_t grad = -1;  // the finished gradient
  std::int64_t copy = -1;  // the low-precision copy
};
/// Type of the shard that a fetch of params copies: of a frozen unit, as it is stored.
[[nodiscard]] DType fetched_dtype(const ScheduledUnit& unit);
/// On a device: learning rate, clip factor and so on of a step (kernels::StepScalars); workspace of GEMMs.
inline constexpr std::size_t step_bytes = sizeof(kernels::StepScalars),
                             gemm_workspace_bytes = kernels::gemm_device_workspace;

/// What checkpoints call the residuals; values of elements, fp32.
[[nodiscard]] StateSpec residual_state();
/// True if a unit has residuals.
[[nodiscard]] bool has_residuals(const Schedule& train);

struct MemoryInput {
  const ShardLayout* layout = nullptr;
  std::vector<const Schedule*> schedules;  // the training schedule first, if there is one
  Mesh mesh{1, 1};
  Groups groups;
  Topology topology;
  int rank = 0;
  std::span<const StateSpec> states;   // of the optimizer; inference: none
  std::vector<std::size_t> exchanged;  // by group of exchanges: bytes of the largest one, as if it were a sum of fp32
};

/// States that are kept on the host are in pinned slots. This rank's slots of parameters, gradients, optimizer states,
/// gather and reduce buffers, and staging. ArenaSlot::group: index into Groups::all.
[[nodiscard]] std::vector<ArenaSlot> shard_slots(const MemoryInput& input);

}  // namespace tessera::shard
