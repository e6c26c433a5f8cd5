#pragma once
// Turns a model's modules into the units and module uses from which a schedule is built. Pure.

#include <vector>

#include "models/module.hpp"
#include "runtime/shard/layout.hpp"
#include "runtime/shard/policy.hpp"
#include "runtime/shard/schedule.hpp"

namespace tessera::plan {

/// One unit per module that has parameters which no earlier module reads; a tied parameter belongs to its first reader.
/// With ExpertUnits::block, a layer and its experts are one unit. Where only some of these parameters are trainable,
/// the frozen ones are a second unit, "h.3.frozen"; or, if they are stored in several types, a unit for each, as
/// "h.3.frozen.bf16". Throws Error (usage) if a glob of Strategy::unit_strategies matches no unit.
[[nodiscard]] std::vector<shard::UnitSpec> make_units(const models::Model& model, const shard::Strategy& strategy);

/// Units that each module reads and contributes gradients to, in a phase.
[[nodiscard]] std::vector<shard::ModuleUse> module_uses(const models::Model& model,
                                                        const std::vector<shard::UnitSpec>& units, models::Phase phase);

}  // namespace tessera::plan
