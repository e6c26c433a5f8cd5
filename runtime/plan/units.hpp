#pragma once
// Where models and shard meet: a model's modules become shard units and the uses a schedule is built from. Pure.

#include <string>
#include <vector>

#include "models/module.hpp"
#include "runtime/shard/layout.hpp"
#include "runtime/shard/policy.hpp"
#include "runtime/shard/schedule.hpp"

namespace tessera::plan {

/// One unit per module that has parameters of its own: those no earlier module reads. A tied parameter belongs to its
/// first reader. With ExpertUnits::block, neighbours of one group (a layer and its experts) have one unit.
[[nodiscard]] std::vector<shard::UnitSpec> make_units(const models::Model& model, shard::ExpertUnits experts);

/// What each module reads and contributes to, for training (backward included) or for forward passes alone.
[[nodiscard]] std::vector<shard::ModuleUse> module_uses(const models::Model& model,
                                                        const std::vector<shard::UnitSpec>& units, models::Phase phase);

}  // namespace tessera::plan
