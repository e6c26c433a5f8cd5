// SPDX-License-Identifier: Apache-2.0
#pragma once
// The settings of a run that change its mathematics, and what of them differs from a checkpoint's.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "io/checkpoint/manifest.hpp"
#include "jobs/cli/options/options.hpp"
#include "runtime/train/trainer.hpp"

namespace tessera::jobs {

/// The settings that decide how training continues from a state and may change on resuming: learning rate and schedule,
/// optimizer, clipping, precision, batch, dropout. Kept in run.json and in the run metadata of each checkpoint
/// ("settings"), with text_settings.
[[nodiscard]] nlohmann::ordered_json training_settings(const train::TrainerOptions& options);
/// How conversations become samples and which of their text has loss, as far as the tokens of the data do not show it.
/// `micro_batch`: the run's.
[[nodiscard]] nlohmann::ordered_json text_settings(const Options& options, std::int64_t micro_batch);

struct SettingChange {
  std::string name, before, after;  // as JSON
};
/// What of `now` differs from what the checkpoint was made with, as far as its manifest says: one made before settings
/// were kept has the optimizer's and the types alone.
[[nodiscard]] std::vector<SettingChange> changed_settings(const io::Manifest& manifest,
                                                          const nlohmann::ordered_json& now);
/// Those of `now` that every run keeps and the checkpoint does not say, because an older program wrote it: "dropout,
/// loss_scale"; "": none.
[[nodiscard]] std::string unknown_settings(const io::Manifest& manifest, const nlohmann::ordered_json& now);
/// The keys of config.json whose values differ, by their names behind "config.json "; those of the file's origin and
/// dtype are left out.
[[nodiscard]] std::vector<SettingChange> changed_config(const std::string& then, const std::string& now);
/// "learning_rate 0.01 -> 0.003, …"
[[nodiscard]] std::string text_of(const std::vector<SettingChange>& changes);

}  // namespace tessera::jobs
