// SPDX-License-Identifier: Apache-2.0
#pragma once
// What conversions share that read a model's weights into the memory of all ranks, and write them from it.

#include <string>
#include <vector>

#include "io/convert/convert.hpp"
#include "models/module.hpp"
#include "runtime/comm/world.hpp"
#include "runtime/plan/plan.hpp"

namespace tessera::jobs {

/// A run that holds the weights in fp32, sharded over all ranks, and adapters on each.
[[nodiscard]] plan::RunSpec whole_model_spec(const models::Model& model, World& world);

/// Collective. Writes the model in `directory`, whose weights are in MXFP4 or FP8, with them as `dtype` into the
/// target's directory, which must not exist; config.json loses its quantization_config.
io::ConvertReport write_coded_as_floats(World& world, const std::string& directory, const std::string& config,
                                        const io::ConvertTarget& target, DType dtype);

}  // namespace tessera::jobs
