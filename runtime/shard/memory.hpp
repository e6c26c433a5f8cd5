#pragma once
// What the sharded state of a run takes, slot by slot: pure. The planner prints it, the arena
// allocates it, the manager uses it.

#include <cstddef>
#include <vector>

#include "kernels/gemm.hpp"
#include "kernels/step.hpp"
#include "runtime/base/arena.hpp"
#include "runtime/comm/topology.hpp"
#include "runtime/shard/layout.hpp"
#include "runtime/shard/schedule.hpp"

namespace tessera::shard {

/// Names of the slots of sharded state; units and slots by index.
[[nodiscard]] std::string param_slot_name(const Schedule& schedule, const ShardLayout& layout, int slot);
[[nodiscard]] std::string grad_slot_name(const Schedule& schedule, const ShardLayout& layout, int slot);
[[nodiscard]] std::string resident_param_name(const ShardLayout& layout, int unit);
[[nodiscard]] std::string resident_grad_name(const ShardLayout& layout, int unit);
[[nodiscard]] std::string master_name(const ShardLayout& layout, int unit);
[[nodiscard]] std::string accumulator_name(const ShardLayout& layout, int unit, int partial);
[[nodiscard]] std::string state_name(const ShardLayout& layout, int unit, int state);
inline constexpr const char* reduced_name = "reduced";
inline constexpr const char* norm_name =
    "norm";  // on a device: the words that norm sums, and those of one unit; pinned: what the host tells and reads
/// On a device: what changes from step to step (kernels::StepScalars), and scratch of products.
inline constexpr std::size_t step_bytes = sizeof(kernels::StepScalars),
                             gemm_workspace_bytes = kernels::gemm_device_workspace;
inline constexpr const char* shard_staging_name = "staging.shard";
inline constexpr const char* replicate_staging_name = "staging.replicate";

struct MemoryInput {
  const ShardLayout* layout = nullptr;
  std::vector<const Schedule*> schedules;  // the training schedule first, if there is one
  Mesh mesh{1, 1};
  Topology topology;
  int rank = 0;
  int num_states = 2;  // optimizer states per element (AdamW: 2; inference: 0)
};

/// Parameters, gradients, optimizer states, gather and reduce buffers and staging of this rank.
[[nodiscard]] std::vector<ArenaSlot> shard_slots(const MemoryInput& input);

}  // namespace tessera::shard
