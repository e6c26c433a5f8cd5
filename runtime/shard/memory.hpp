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

/// Names of slots; units, slots and accumulators by index.
[[nodiscard]] std::string param_slot_name(const Schedule& schedule, const ShardLayout& layout, int slot);
[[nodiscard]] std::string grad_slot_name(const Schedule& schedule, const ShardLayout& layout, int slot);
[[nodiscard]] std::string resident_param_name(const ShardLayout& layout, int unit);
[[nodiscard]] std::string resident_grad_name(const ShardLayout& layout, int unit);
[[nodiscard]] std::string master_name(const ShardLayout& layout, int unit);
[[nodiscard]] std::string accumulator_name(const ShardLayout& layout, int unit, int accumulator);
[[nodiscard]] std::string state_name(const ShardLayout& layout, int unit, const StateSpec& state);
[[nodiscard]] std::string sum_slot_name(int slot);
/// "stage.grads.1": a staging slot.
[[nodiscard]] std::string staging_slot_name(const Schedule& schedule, int slot);
/// Of a unit whose optimizer states are offloaded: this rank's shard on the device, where gathers do not read it in a
/// resident slot; and the low-precision copy on the host, which an update writes and a fetch reads.
[[nodiscard]] std::string shard_name(const ShardLayout& layout, int unit);
[[nodiscard]] std::string host_copy_name(const ShardLayout& layout, int unit);
/// True if there is such a copy; false: a fetch of params reads the master weights, which have the type of the shard.
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
/// Error feedback of a unit's gradient: what this rank's reduce_scatter and all_reduce have not sent; and the sum of
/// these over ranks, as checkpoints hold it (residual_state).
[[nodiscard]] std::string scatter_residual_name(const ShardLayout& layout, int unit);
[[nodiscard]] std::string reduce_residual_name(const ShardLayout& layout, int unit);
[[nodiscard]] std::string residual_sum_name(const ShardLayout& layout, int unit);
/// "int8.shard": codes that a group's collectives send and receive.
[[nodiscard]] std::string int8_staging_name(AxisSet axes);
/// On a device: the counters of norm, and the norms of two units, one of each communication stream. Pinned: the host's
/// counters, and the summed ones.
inline constexpr const char* norm_name = "norm";
/// On a device: learning rate, clip factor and so on of a step (kernels::StepScalars); workspace of GEMMs.
inline constexpr std::size_t step_bytes = sizeof(kernels::StepScalars),
                             gemm_workspace_bytes = kernels::gemm_device_workspace;
/// "staging.shard": the staging buffer of the communicator of a group.
[[nodiscard]] std::string staging_name(AxisSet axes);
[[nodiscard]] bool is_staging(const ArenaSlot& slot);

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
  std::span<const StateSpec> states;  // of the optimizer; inference: none
};

/// States that are kept on the host are in pinned slots. This rank's slots of parameters, gradients, optimizer states,
/// gather and reduce buffers, and staging. ArenaSlot::group: index into Groups::all.
[[nodiscard]] std::vector<ArenaSlot> shard_slots(const MemoryInput& input);

}  // namespace tessera::shard
