// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which buffers the units of a schedule use, and when: the builder's first half. Pure.

#include <vector>

#include "runtime/shard/buffer_lifetimes.hpp"
#include "runtime/shard/builder.hpp"

namespace tessera::shard {

enum class ScheduleKind : unsigned char { train, forward };

/// Everything about a schedule but the order of its instructions.
struct BufferPlan {
  std::vector<ScheduledUnit> units;
  std::vector<Slot> slots;  // Slot::units: of resident slots only; the others are filled as they are used
  std::vector<ModuleExecution> executions;   // forward passes, and in training backward passes, of all micro-batches
  std::vector<BufferLifetime> lifetimes;     // of the units that this schedule gathers
  std::vector<int> resident_slot;            // unit → its parameter slot; -1: not resident
  std::vector<std::vector<int>> grad_slots;  // unit → the slots that its gradient may take; empty: no gradient
  std::vector<std::vector<int>> sum_slots;   // unit → the slots that its reduced gradient may take; empty: none
  std::vector<int> stage_slots[num_state_kinds];  // by kind of state: the slots that its units take turns in
  /// Unit → the modules whose backward is the first, and the last, to contribute to its gradient; -1: none does.
  std::vector<int> first_contributor, last_contributor;
};

/// Throws std::logic_error if the input is not valid: a module names a unit that does not exist, reproducible sums with
/// Reduce::last, and others.
[[nodiscard]] BufferPlan plan_buffers(const ScheduleInput& input, ScheduleKind kind);

/// The record of a unit in the schedules of this input, without what only training has.
[[nodiscard]] ScheduledUnit scheduled_unit(const ScheduleInput& input, const UnitInput& unit);

/// `a` and then what of `b` is not in it.
[[nodiscard]] std::vector<int> union_of(const std::vector<int>& a, const std::vector<int>& b);

}  // namespace tessera::shard
