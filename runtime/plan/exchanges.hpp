// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory and bytes of modules with stages: the values that stages pass to one another, and their exchanges. Pure.

#include "runtime/plan/plan.hpp"

namespace tessera::plan {

/// The module that an instruction of the model or of a reference model names.
[[nodiscard]] const models::Module& module_of(const models::Model& model, const shard::Instruction& instruction);

/// Bytes that an exchange has of its source on each rank, in a micro-batch of this shape.
[[nodiscard]] std::size_t exchanged_bytes(const models::Model& model, const shard::Schedule& schedule,
                                          const shard::Instruction& exchange, const models::BatchShape& shape);

/// Shape of a micro-batch of a schedule of the plan, at most.
[[nodiscard]] models::BatchShape shape_of(const RunPlan& plan, const shard::Schedule& schedule);

/// Throws std::logic_error if a value that an exchange writes has another size than what the exchange makes of what it
/// reads: a module's mistake, such as a gradient in 16 bits where an exchange has a sum, which is fp32.
void check_exchanges(const RunPlan& plan);

/// By group of exchanges: MemoryInput::exchanged.
[[nodiscard]] std::vector<std::size_t> largest_exchanges(const RunPlan& plan);

/// Adds the slots of values and of their gradients to the plan's.
void add_value_slots(RunPlan& plan);

}  // namespace tessera::plan
