// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arena slots of activations, saved tensors, token buffers and workspaces. Pure.

#include <vector>

#include "runtime/plan/plan.hpp"

namespace tessera::plan {

/// Where activations are offloaded, in host memory: where a fetch or a store of a module's activations keeps them.
[[nodiscard]] SlotId offloaded_slot(const shard::Instruction& instruction);
/// Bytes that it moves of a micro-batch of this shape.
[[nodiscard]] std::size_t moved_activation_bytes(const RunSpec& spec, const shard::Schedule& train,
                                                 const shard::Instruction& instruction,
                                                 const models::BatchShape& shape);
/// Sets what ModuleUse says of saved activations, and of those that the policy offloads.
void mark_saved(const RunSpec& spec, std::vector<shard::ModuleUse>& modules);
/// Bytes that a quantized parameter of the model takes in SlotUse::dequantized: the next one begins after them.
[[nodiscard]] std::size_t dequantized_bytes(const models::Model& model, int param);
/// Whether micro-batches of a run have this tensor; its slot is {SlotUse::batch, field}.
[[nodiscard]] bool has_field(const RunSpec& spec, models::BatchField field);
[[nodiscard]] constexpr SlotId batch_slot(models::BatchField field) {
  return {SlotUse::batch, static_cast<int>(field)};
}

/// Places the slots of a run in device memory, and staging in pinned memory. Adds what only a device has: the counters
/// of norm, the scalars of the step, the GEMM workspace, and pinned counterparts of what the host writes or reads.
void place_on_device(const RunSpec& spec, int num_units, std::vector<ArenaSlot>& slots);

[[nodiscard]] std::vector<ArenaSlot> activation_slots(const RunSpec& spec, const shard::Schedule& train);
/// Evaluation and generation: two module outputs used alternately, one workspace, caches; no gradient.
[[nodiscard]] std::vector<ArenaSlot> inference_slots(const RunSpec& spec);

}  // namespace tessera::plan
