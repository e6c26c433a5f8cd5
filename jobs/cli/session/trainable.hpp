// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which parameters are trained: --freeze_parameters and --trainable_parameters.

#include <span>
#include <string>
#include <vector>

#include "jobs/cli/options/options.hpp"
#include "jobs/cli/session/adapter_config.hpp"
#include "models/module.hpp"
#include "models/param_selector.hpp"

namespace tessera::jobs {

/// One glob of --freeze_parameters or --trainable_parameters.
struct TrainableRule {
  bool trainable = false;
  std::string glob;
  std::string source;  // "--freeze_parameters: command line", for messages
};
/// The globs of both options as one list, in the order in which they were given.
[[nodiscard]] std::vector<TrainableRule> trainable_rules(const Options& options);

/// Whether each parameter of the model is trained. The last rule that selects a parameter (models::ParamSelector)
/// decides. One that no rule selects is trained, unless the first rule is of --trainable_parameters: then it is frozen.
/// Throws Error (usage): a glob that selects nothing, with names close to it; nothing is left to train.
[[nodiscard]] std::vector<bool> trainable_params(const models::Model& model, const std::vector<TrainableRule>& rules);

/// The model of a training run: models::make, with adapters (`adapter`: that of --adapters), or with
/// ParamSpec::trainable from the options; frozen parameters are stored in `dtype`, in which the run computes. Throws
/// Error (usage) as these do.
[[nodiscard]] models::Model make_training_model(const Options& options, const std::string& config_json,
                                                const std::string& source, DType dtype,
                                                const AdapterConfig& adapter = {});

/// "Did you mean …?" for a glob that selects nothing; wildcards at its end are not compared.
[[nodiscard]] std::string close_names(const std::string& glob, const models::ParamSelector& selector);

/// What a run trains or freezes that the checkpoint it resumes from did not: names, in canonical order.
struct FrozenChange {
  std::vector<std::string> now_trained;  // they start with zero optimizer states
  std::vector<std::string> now_frozen;
  [[nodiscard]] bool any() const { return !now_trained.empty() || !now_frozen.empty(); }
  /// "now trained, from zero optimizer states: wte.weight, wpe.weight; now frozen: …"; up to three names of each kind.
  [[nodiscard]] std::string text() const;
};
/// `then`: what was frozen when the checkpoint was saved.
[[nodiscard]] FrozenChange frozen_change(const std::vector<std::string>& then, std::span<const ParamSpec> params);

[[nodiscard]] std::int64_t num_trainable(std::span<const ParamSpec> params);
/// "124.4M parameters, 38.6M trainable (31.0 %)"; without the share if all are trained.
[[nodiscard]] std::string parameters_text(std::span<const ParamSpec> params);

}  // namespace tessera::jobs
