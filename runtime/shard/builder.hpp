// SPDX-License-Identifier: Apache-2.0
#pragma once
// The schedule builder: makes a Schedule of units, mesh, policy and number of micro-batches. Pure.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/comm/mesh.hpp"
#include "runtime/shard/policy.hpp"
#include "runtime/shard/schedule.hpp"

namespace tessera::shard {

struct UnitInput {
  std::string name;
  std::int64_t numel = 0;            // padded
  bool trainable = true;             // false: frozen. In inference every unit is
  DType storage_dtype = DType::f32;  // of this rank's shard
  // Absent: as in the run.
  std::optional<UnitPolicy> policy;
  std::optional<bool> params_in_place;
  Int8Collectives int8;
};

struct ScheduleInput {
  std::vector<UnitInput> units;
  std::vector<ModuleUse> modules;          // in forward order; the last computes the loss
  std::vector<ReferenceModel> references;  // run before it
  Mesh mesh{1, 1};
  ShardPolicy policy;
  int num_micro = 1;             // accumulation steps
  bool params_in_place = false;  // shard groups share memory: units are resident, and a gather is a barrier
  bool updates_on_host = false;  // of units whose optimizer states are offloaded: the run computes on a device
};

/// A training step (docs/strategies.md shows one for each strategy). S: size of a unit's shard group.
/// - S == 1: parameters are resident; no gather, no release. World 1: reduce and norm stay, as local work.
/// - gather, with shard_params: once per use. The unit is released after forward (reshard_after_forward) and after the
///   backward of the micro-batch. A release is left out with the next gather of the same unit if its slot is not used
///   between them. Without shard_params: once per step, before the first forward. A gather is issued `prefetch` uses
///   ahead, if a slot is free. A sharded resident unit that is not trainable is not gathered here:
///   build_load does it.
/// - references: in each micro-batch, their forward passes, then the model's.
/// - backward: down to the first module that contributes to a gradient; nothing before it is trainable.
/// - gradient slots: a unit's gradient is reduced once if num_micro == 1, or if its micro-batches are added in its slot
///   (ScheduledUnit::adds_in_slot). One resident slot per unit without shard_grads, or if micro-batches are added in
///   it; else shared. With S == 1 they are resident, and reduced in place, if reduced once; else shared. Resident slots
///   that are reduced once need no accumulator. Gradients narrower than fp32 are never reduced in place: they need an
///   accumulator, and with S == 1 are resident only if micro-batches are added in them.
/// - reduce_scatter: after the last backward that contributes in a micro-batch, units in the order of backward. A unit
///   with replicate axes has an all_reduce after it, or, if it is not sharded, in its place. Both follow each
///   micro-batch; with reduce == shard_each, all_reduce follows the last only; with last, both do.
/// - accumulation: a running sum in accumulator 0, or with reproducible a binary-counter reduction tree over the
///   micro-batches. What is added is in a sum slot; between reduce_scatter and all_reduce there are two to take turns.
///   A running sum of one rank alone adds from the gradient slot.
/// - norm after all sums; then update of each unit with a gradient, in unit order.
/// - states that are offloaded (UnitPolicy::placement): a fetch of params before each gather; a store of the gradient
///   accumulators after each micro-batch's sum, and a fetch of them before the next one's; a fetch of what the update
///   works on, and a store of it after the update. They share ShardPolicy::staging_slots staging slots for each kind; a
///   fetch waits only until its slot is free. An update on the host follows the store of its gradient; with
///   updates_before_norm it does not wait for norm. What it has written is fetched to the device after it and norm.
/// - activations that are offloaded (ShardPolicy::activations): the inputs of modules take turns in staging_slots + 1
///   staging slots, and what forward saves in staging_slots. A module's store follows its forward, and its fetch the
///   backward that frees a slot. What no later module's forward overwrites stays in its slot.
[[nodiscard]] Schedule build_train(const ScheduleInput& input);

/// Forward passes of one micro-batch, for evaluation and generation; with_loss: ends in `norm`, which sums the loss.
[[nodiscard]] Schedule build_forward(const ScheduleInput& input, bool with_loss);

/// Gathers the sharded, resident units that are not trainable: once, before every other schedule. Empty if there are
/// none.
[[nodiscard]] Schedule build_load(const ScheduleInput& input);

}  // namespace tessera::shard
