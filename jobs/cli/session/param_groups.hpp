// SPDX-License-Identifier: Apache-2.0
#pragma once
// Learning rate and weight decay by parameter: --param_groups.

#include <optional>
#include <string>
#include <vector>

#include "jobs/cli/options/options.hpp"
#include "models/module.hpp"
#include "runtime/train/optimizers.hpp"

namespace tessera::jobs {

/// "h.0 lr_scale=0.1 weight_decay=0": a glob (models::ParamSelector) and one or both values.
struct ParamGroup {
  std::string glob;
  std::optional<double> lr_scale;      // multiplies the learning rate
  std::optional<double> weight_decay;  // in place of --weight_decay; biases and norms have it too
};
/// Throws Error (usage): malformed, or a value that is negative or not finite. `source`: for the message.
[[nodiscard]] ParamGroup parse_param_group(const std::string& text, const std::string& source);

/// Learning-rate factor and weight decay of each parameter of the model; empty without --param_groups. Of the groups
/// that select a parameter, the last that gives a value decides it. Throws Error (usage): parse_param_group; a glob
/// that selects nothing, with names close to it.
[[nodiscard]] std::vector<train::ParamRates> param_rates(const Options& options, const models::Model& model,
                                                         double weight_decay);

/// The group of --lorap_lr_ratio, which is before those of --param_groups.
[[nodiscard]] std::string lora_plus_group(const Options& options);

}  // namespace tessera::jobs
