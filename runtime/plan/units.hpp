// SPDX-License-Identifier: Apache-2.0
#pragma once
// Turns a model's modules into the units and module uses from which a schedule is built. Pure.

#include <vector>

#include "models/module.hpp"
#include "runtime/shard/layout.hpp"
#include "runtime/shard/policy.hpp"
#include "runtime/shard/schedule.hpp"

namespace tessera::plan {

/// The unit's name in WrapPolicy::Kind::model.
inline constexpr const char* whole_model_name = "model";

/// The units of a model, in the order of its modules. A parameter belongs to the first module that reads it. A module
/// is a unit of its name, unless it shares one with others:
/// - WrapPolicy: consecutive blocks are one unit ("h.0-2"), or the whole model is ("model"). A block is the modules of
///   one group; embedding and head are the first and the last module.
/// - ExpertUnits::own: the experts of these blocks are a second unit ("layers.0-2.experts"); block: they are in the
///   unit of the layer.
/// Where only some of a unit's parameters are trainable, the frozen ones are a unit of their own, "h.3.frozen"; or, if
/// they are stored in several types, a unit for each, as "h.3.frozen.bf16". Adapters are always apart: "h.3.lora".
/// Beside parameters that are split over the tensor axis, replicated ones are a unit of their own,
/// "layers.3.replicated", which is over that axis too. Parameters that only a reference model reads are in units of its
/// modules. Throws Error (usage) if a glob of Strategy::unit_strategies matches no unit.
[[nodiscard]] std::vector<shard::UnitSpec> make_units(const models::Model& model, const shard::Strategy& strategy);

/// Units that each module reads and contributes gradients to, in a phase, and its stages.
[[nodiscard]] std::vector<shard::ModuleUse> module_uses(const models::Model& model,
                                                        const std::vector<shard::UnitSpec>& units, models::Phase phase,
                                                        const Mesh& mesh);

/// The model's reference model, if it has one.
[[nodiscard]] std::vector<shard::ReferenceModel> references(const models::Model& model,
                                                            const std::vector<shard::UnitSpec>& units,
                                                            const Mesh& mesh);

}  // namespace tessera::plan
