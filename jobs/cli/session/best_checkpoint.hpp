// SPDX-License-Identifier: Apache-2.0
#pragma once
// The best checkpoint of a run: which metric decides, and whether an evaluation is better than the best one so far.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "jobs/cli/options/options.hpp"

namespace tessera::jobs {

/// What --metric_for_best_model asks for.
struct BestMetric {
  std::string name;                // a field of an evaluation's record: "eval_loss"
  bool greater_is_better = false;  // --greater_is_better; by default all but losses and perplexities
};
/// None: neither --metric_for_best_model nor --load_best_model_at_end is given. "loss" stands for "eval_loss".
[[nodiscard]] std::optional<BestMetric> best_metric(const Options& options);

/// Throws Error (usage) if --load_best_model_at_end is given and evaluations and checkpoints do not coincide: both by
/// epoch, or --save_steps a multiple of --eval_steps. Shares of all steps are compared by check_best_steps.
void check_best_options(const Options& options);
/// The same for the numbers of steps in a run of so many.
void check_best_steps(const Options& options, std::int64_t total_steps);

/// The checkpoint with the best evaluation of those that were evaluated at their step.
struct BestCheckpoint {
  BestMetric metric;
  double value = 0;
  std::int64_t step = 0;
  std::string path;
  std::string validation = {};  // DataIdentity::validation of the evaluation; "": an older program did not record it
};
/// NaN is never better; an equal value is not.
[[nodiscard]] bool is_better(const BestMetric& metric, double value, const std::optional<BestCheckpoint>& best);

/// Without the path, which may differ between equal runs.
[[nodiscard]] nlohmann::ordered_json to_json(const BestCheckpoint& best);
/// Reverses it. Throws Error (data), naming `source`, if it is malformed.
[[nodiscard]] BestCheckpoint best_from_json(const nlohmann::ordered_json& json, const std::string& source);

/// A manifest's "training" object, an object's text, with this best checkpoint where training_text writes it.
[[nodiscard]] std::string with_best(const std::string& training, const BestCheckpoint& best);
/// The run metadata of a manifest, an object's text, with the path of the best checkpoint, made absolute.
[[nodiscard]] std::string with_best_path(const std::string& run_metadata, const std::string& path);

}  // namespace tessera::jobs
