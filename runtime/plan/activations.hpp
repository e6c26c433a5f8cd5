// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arena slots of activations, saved tensors, token buffers and workspaces. Pure.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/plan.hpp"

namespace tessera::plan {

/// Names of the slots. Module i writes its output to boundary(i); the last module has none.
[[nodiscard]] std::string boundary_name(int module);
/// Evaluation, generation and reference models use two slots alternately; a module that works in place, the one of its
/// input. `modules`: of the schedule, or of a reference model.
[[nodiscard]] std::string alternate_boundary_name(const std::vector<shard::ModuleUse>& modules, int module);
/// In a training step, where modules in front of the first backward use two slots alternately.
[[nodiscard]] std::string train_boundary_name(const shard::Schedule& train, int module);
/// What module i saves for backward. Recomputed modules share one slot: every training forward writes it, and backward
/// reads what the recompute before it has written.
[[nodiscard]] std::string saved_name(const shard::Schedule& train, int module);
/// What module i keeps beside that, if splits_saved.
[[nodiscard]] std::string kept_name(const shard::Schedule& train, int module);
/// Whether selective checkpointing divides what module i saves.
[[nodiscard]] bool splits_saved(const RunSpec& spec, const shard::Schedule& train, int module);
// Where activations are offloaded (shard::Schedule::offloads_activations):
/// A staging slot. The first two slots of inputs are what evaluation and reference models use alternately.
[[nodiscard]] std::string activation_slot_name(const shard::Schedule& train, int slot);
/// "host.input.h.3": where a fetch or a store of a module's activations keeps them.
[[nodiscard]] std::string activation_home_name(const shard::Schedule& train, const shard::Instruction& instruction);
/// Bytes that it moves of a micro-batch of this shape.
[[nodiscard]] std::size_t moved_activation_bytes(const RunSpec& spec, const shard::Schedule& train,
                                                 const shard::Instruction& instruction,
                                                 const models::BatchShape& shape);
/// Sets ModuleUse::offloads and saves, if the policy offloads activations.
void mark_offloaded(const RunSpec& spec, std::vector<shard::ModuleUse>& modules);
inline constexpr const char* gradient_name = "dx";  // (B, T, C), gradient of the current module output
inline constexpr const char* workspace_name = "workspace";
/// The quantized matrices that a module reads, in the type that it computes in. Modules use it in turn.
inline constexpr const char* dequantized_name = "dequantized";
/// Bytes that a quantized parameter of the model takes there: the next one begins after them.
[[nodiscard]] std::size_t dequantized_bytes(const models::Model& model, int param);
inline constexpr const char* router_name = "router";  // (layers with experts, 2, E) f64: Batch::router; training only
inline constexpr const char* reference_name = "reference";           // Batch::reference
inline constexpr const char* sequences_name = "sequence_log_probs";  // Batch::sequence_log_probs
inline constexpr const char* loss_rows_name = "loss_rows";           // Batch::loss_rows
inline constexpr const char* logits_name = "logits";                 // (1, V); generate: (B, V)
inline constexpr const char* chosen_name = "chosen";  // generate, on a device: (B) int32, the largest logits
/// Whether micro-batches of a run have this tensor; its slot has its name.
[[nodiscard]] bool has_field(const RunSpec& spec, models::BatchField field);
/// Key-value cache of module i, for B rows of cache_tokens, in generation.
[[nodiscard]] std::string cache_name(const models::Model& model, int module);

// On a device. What the host writes for it, or reads from it, has a pinned slot too: pinned_name(slot).
inline constexpr const char* step_name = "step";                      // kernels::StepScalars
inline constexpr const char* gemm_workspace_name = "gemm_workspace";  // cuBLASLt's, for the compute stream
[[nodiscard]] std::string pinned_name(std::string_view slot);
/// Places the slots of a run in device memory, and staging in pinned memory. Adds what only a device has: the counters
/// of norm, the scalars of the step, pinned counterparts, and the GEMM workspace.
void place_on_device(const RunSpec& spec, int num_units, std::vector<ArenaSlot>& slots);

[[nodiscard]] std::vector<ArenaSlot> activation_slots(const RunSpec& spec, const shard::Schedule& train);
/// Evaluation and generation: two module outputs used alternately, one workspace, caches; no gradient.
[[nodiscard]] std::vector<ArenaSlot> inference_slots(const RunSpec& spec);

}  // namespace tessera::plan
