#pragma once
// Slots of activations and workspaces: what passes between modules, what backward needs, what is scratch. Pure.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/plan.hpp"

namespace tessera::plan {

/// Names of the slots. Module i writes boundary(i); the last module writes none.
[[nodiscard]] std::string boundary_name(int module);
/// What module i keeps for backward. Where the schedule recomputes, all recomputable modules take turns in one slot:
/// their first forward writes it too (a module has one training forward), and what backward reads there is what its
/// recompute wrote.
[[nodiscard]] std::string saved_name(const shard::Schedule& train, int module);
inline constexpr const char* gradient_name = "dx";  // (B, T, C), gradient of the current boundary
inline constexpr const char* workspace_name = "workspace";
inline constexpr const char* ids_name = "ids";              // (B, T) int32
inline constexpr const char* targets_name = "targets";      // (B, T) int32
inline constexpr const char* positions_name = "positions";  // (B, T) int32: Batch::positions of packed rows
inline constexpr const char* router_name = "router";  // (layers with experts, 2, E) f64: Batch::router; training only
inline constexpr const char* logits_name = "logits";  // (1, V); generate: (B, V)
/// Keys and values that module i keeps of B rows of cache_tokens, in generation.
[[nodiscard]] std::string cache_name(const models::Model& model, int module);

// On a device. What the host writes for it, or reads of it, is pinned, under the slot's name with a prefix.
inline constexpr const char* step_name = "step";                // kernels::StepScalars
inline constexpr const char* gemm_workspace_name = "products";  // scratch that cuBLASLt has for the stream of products
[[nodiscard]] std::string pinned_name(std::string_view slot);
/// Puts the slots of a run on its device, staging into pinned memory, and adds what only a device has: words of the
/// norm, the step's memory, pinned sides of what the host writes and reads.
void place_on_device(const RunSpec& spec, int num_units, std::vector<ArenaSlot>& slots);

[[nodiscard]] std::vector<ArenaSlot> activation_slots(const RunSpec& spec, const shard::Schedule& train);
/// Of evaluation or generation: two boundaries in turns, one workspace, no gradient; the caches.
[[nodiscard]] std::vector<ArenaSlot> inference_slots(const RunSpec& spec);

}  // namespace tessera::plan
