#pragma once
// The schedule builder: (units, mesh, policy, accumulation) → Schedule. Pure. The only reader of ShardPolicy beside the
// layout.

#include <cstdint>
#include <span>

#include "runtime/comm/mesh.hpp"
#include "runtime/shard/policy.hpp"
#include "runtime/shard/schedule.hpp"

namespace tessera::shard {

struct ScheduleInput {
  std::vector<std::string> units;
  std::vector<ModuleUse> modules;        // in forward order; the last makes the loss
  std::vector<std::int64_t> unit_numel;  // padded; the builder gives slots to units of like size
  Mesh mesh{1, 1};
  ShardPolicy policy;
  int num_micro = 1;             // accumulation steps
  bool params_in_place = false;  // the shard axis shares memory: every unit is resident, gather is a synchronisation
  bool params_fixed =
      false;  // inference: build_load has gathered what is resident, once for all runs of build_forward's list
};

/// A training step. What it emits (docs/strategies.md has it as text for each strategy):
/// - S == 1: no gather, no release; parameters resident. World 1: no collective at all; reduce and norm stay, as local
/// work.
/// - gather of a unit: once per use if shard_params (released after forward if reshard_after_forward, always after
/// backward of
///   the micro-batch), else once per step, before the first forward. A release directly followed by a gather of the
///   same unit with no other use of its slot between is dropped with it. A gather is issued `prefetch` uses ahead, in
///   slots that are free.
/// - gradients: transient slots (shard_grads), else one resident slot per unit. With S == 1 they are resident, and
/// reduced in
///   place, whenever num_micro == 1 or reduce == last; else transient. Resident and (num_micro == 1 or last):
///   num_accumulators 0. Gradients of a type narrower than fp32 are never reduced in place: num_accumulators is at
///   least 1, and with S == 1 only `last` keeps them resident.
/// - reduce: after the last contributing backward of the micro-batch; the unit order is that of backward. Accumulation:
/// running sum
///   (fold {0} into 0), or with reproducible the binary counter over micro-batches, folded up at the last.
/// - norm after every reduce; update of each unit, in unit order, after norm.
[[nodiscard]] Schedule build_train(const ScheduleInput& input);

/// Forward only, one micro-batch: evaluation (ends in `norm` for the loss when `with_loss`) and generation.
[[nodiscard]] Schedule build_forward(const ScheduleInput& input, bool with_loss);

/// With params_fixed: gathers every unit that stays resident; empty where nothing is cut, or
/// everything is gathered for each use.
[[nodiscard]] Schedule build_load(const ScheduleInput& input);

}  // namespace tessera::shard
