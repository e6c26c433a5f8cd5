// SPDX-License-Identifier: Apache-2.0
#pragma once
// The slots of activations that are not offloaded: the builder's part that needs no order of instructions. Pure.

#include "runtime/shard/buffer_plan.hpp"

namespace tessera::shard {

/// Adds the slots to the schedule, and fills its tables:
/// - outputs: in training a slot for each module, since backward reads it; where there is no backward (modules in front
///   of the first one, evaluation, generation, reference models) two slots alternately. A module that works in place
///   has the slot of its input.
/// - saved: a slot for each module; what recomputes leave again, one slot for all.
/// - the gradient of an input: one slot for all.
/// - values of stages: a slot for each number, which modules use in turn; for each module, of those that backward reads
///   and no recompute makes again. Their gradients: a slot for each number; none of constant ones.
/// Inputs and saved activations that are offloaded are left to ActivationStages.
void place_activations(const ScheduleInput& input, ScheduleKind kind, Schedule& schedule);

}  // namespace tessera::shard
