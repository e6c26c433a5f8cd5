// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arena slots of activations, saved tensors, token buffers and workspaces. Pure.

#include <vector>

#include "runtime/plan/plan.hpp"

namespace tessera::plan {

/// Evaluation, generation and reference models write their outputs to two slots alternately; a module that works in
/// place, to that of its input. `modules`: of the schedule, or of a reference model. The last module has no output.
[[nodiscard]] SlotId alternate_output(const std::vector<shard::ModuleUse>& modules, int module);
/// In a training step, where modules in front of the first backward use two slots alternately.
[[nodiscard]] SlotId train_output(const shard::Schedule& train, int module);
/// What module i saves for backward. Recomputed modules share one slot: every training forward writes it, and backward
/// reads what the recompute before it has written.
[[nodiscard]] SlotId saved_slot(const shard::Schedule& train, int module);
/// Whether selective checkpointing divides what module i saves: a part is kept, in {SlotUse::saved, i}.
[[nodiscard]] bool splits_saved(const RunSpec& spec, const shard::Schedule& train, int module);
// Where activations are offloaded (shard::Schedule::offloads_activations) they are in staging slots. The first two
// slots of inputs are what evaluation and reference models use alternately.
/// In host memory: where a fetch or a store of a module's activations keeps them.
[[nodiscard]] SlotId offloaded_slot(const shard::Instruction& instruction);
/// Bytes that it moves of a micro-batch of this shape.
[[nodiscard]] std::size_t moved_activation_bytes(const RunSpec& spec, const shard::Schedule& train,
                                                 const shard::Instruction& instruction,
                                                 const models::BatchShape& shape);
/// Sets ModuleUse::offloads and saves, if the policy offloads activations.
void mark_offloaded(const RunSpec& spec, std::vector<shard::ModuleUse>& modules);
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
