// SPDX-License-Identifier: Apache-2.0
// Collects and compares the settings of runs.
#include "jobs/cli/session/run_settings.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "jobs/cli/session/precision.hpp"
#include "jobs/cli/session/preferences.hpp"
#include "jobs/cli/session/resume.hpp"
#include "jobs/cli/session/reward_model.hpp"
#include "jobs/cli/session/schedule_state.hpp"
#include "models/module.hpp"

namespace tessera::jobs {

namespace {

using SettingsJson = nlohmann::ordered_json;

SettingsJson settings_object(const std::string& text, const char* key) {
  const SettingsJson json = SettingsJson::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains(key) && json.at(key).is_object() ? json.at(key) : SettingsJson::object();
}

/// What the manifest says of the settings of the run that wrote it.
SettingsJson settings_of(const io::Manifest& manifest) {
  SettingsJson then = settings_object(manifest.run_metadata, "settings");
  if (then.empty()) {
    then = settings_object(manifest.training, "optimizer");
    const SettingsJson metadata = SettingsJson::parse(manifest.run_metadata, nullptr, /*allow_exceptions=*/false);
    for (const char* key : {"compute_dtype", "reduce_dtype"})
      if (metadata.is_object() && metadata.contains(key)) then[key] = metadata.at(key);
  }
  if (const SettingsJson optimizer = settings_object(manifest.training, "optimizer"); optimizer.contains("name"))
    then["optim"] = optimizer.at("name");
  return then;
}

/// As it is called where changes are printed: the length of the schedule, which is counted in updates of the run's
/// batch and is not the number of its steps.
std::string shown_name(const std::string& name) { return name == "total_steps" ? "schedule_updates" : name; }

}  // namespace

nlohmann::ordered_json training_settings(const train::TrainerOptions& options) {
  const shard::ShardPolicy& policy = options.run.strategy.policy;
  SettingsJson json = to_json(options.lr);
  json["optim"] = train::name_of(options.optimizer.kind);
  json["param_groups"] = options.optimizer.param_groups;
  json.update(optimizer_settings(options.optimizer));
  json.update({{"max_grad_norm", options.max_grad_norm},
               {"global_batch_size", options.run.batch.global_batch},
               {"compute_dtype", tessera::name_of(policy.param_dtype)},
               {"reduce_dtype", reduce_name(policy)}});
  using Gathers = shard::Compression::Gathers;
  if (policy.compression.gathers != Gathers::none)
    json["gather_dtype"] = policy.compression.gathers == Gathers::frozen ? "int8_frozen" : "int8";
  if (policy.compression.gradients) json["error_feedback"] = policy.compression.error_feedback;
  if (const models::Model* model = options.run.model; model != nullptr && model->lora)
    json["lora_dropout"] = model->lora->spec.dropout;
  if (options.loss_scale)
    json.update({{"loss_scale_window", options.loss_scale->window},
                 {"min_loss_scale", options.loss_scale->least},
                 {"hysteresis", options.loss_scale->hysteresis},
                 {"consecutive_hysteresis", options.loss_scale->consecutive_hysteresis}});
  return json;
}

/// "" where the option is not given.
static std::string given_text(const Options& options, const char* name) {
  return options.has(name) ? options.text(name) : "";
}

/// Always the same keys, so that a resumed run is compared in all of them.
static void add_dpo_settings(const Options& options, const kernels::PreferenceSpec& spec,
                             nlohmann::ordered_json& json) {
  const std::string divergence = options.text("f_divergence_type");
  json["f_divergence_type"] = divergence;
  if (divergence == "alpha_divergence") json["f_alpha_divergence_coef"] = spec.alpha;
  json["loss_weights"] = options.has("loss_weights") ? options.list("loss_weights") : std::vector<std::string>{};
  json["ref_quant_bits"] = given_text(options, "ref_quant_bits");
  json["ld_alpha"] = spec.tail_weight;
  json["use_weighting"] = spec.weighted;
}

nlohmann::ordered_json text_settings(const Options& options, std::int64_t micro_batch) {
  SettingsJson json;
  for (const char* name : {"loss_scale", "template", "system", "truncation_strategy"}) json[name] = options.text(name);
  if (learns_rewards(options)) {
    json["rlhf_type"] = "rm";
    json["center_rewards_coefficient"] = center_of(options);
  } else if (learns_preferences(options)) {
    const kernels::PreferenceSpec spec = preference_spec(options);
    for (const char* name : {"rlhf_type", "ref_model"}) json[name] = options.text(name);
    json.update({{"loss_type", loss_of(options)},
                 {"beta", spec.beta},
                 {"label_smoothing", spec.label_smoothing},
                 {"nll_weight", spec.nll},
                 {"gamma", spec.gamma}});
    if (spec.kind == kernels::PreferenceKind::discopop) json["discopop_tau"] = spec.discopop_tau;
    if (options.text("rlhf_type") == "dpo") add_dpo_settings(options, spec, json);
    if (spec.labelled()) json["ref_quant_bits"] = given_text(options, "ref_quant_bits");
    if (sorts_pairs(options)) json["pairs_sorted_together"] = micro_batch;
    if (spec.labelled())
      json.update({{"desirable_weight", spec.desirable_weight}, {"undesirable_weight", spec.undesirable_weight}});
    if (const std::int64_t group = kl_group(options, micro_batch); group > 0) json[kl_group_setting] = group;
  }
  return json;
}

std::vector<SettingChange> changed_settings(const io::Manifest& manifest, const nlohmann::ordered_json& now) {
  const SettingsJson then = settings_of(manifest);
  std::vector<SettingChange> changes;
  for (const auto& [name, value] : now.items()) {
    // An older program wrote "" for a loss type that was not given.
    if (name == "loss_type" && then.value(name, std::string("none")).empty()) continue;
    if (then.contains(name) && then.at(name) != value)
      changes.push_back({shown_name(name), then.at(name).dump(), value.dump()});
  }
  // What only some runs have: this one lacks it.
  for (const char* name : {"gather_dtype", "lora_dropout", "warmup_type"})
    if (then.contains(name) && !now.contains(name)) changes.push_back({name, then.at(name).dump(), "null"});
  return changes;
}

std::string unknown_settings(const io::Manifest& manifest, const nlohmann::ordered_json& now) {
  const SettingsJson then = settings_of(manifest);
  std::string list;
  for (const char* name : {"learning_rate", "lr_scheduler_type", "warmup_steps", "max_grad_norm", "global_batch_size",
                           "compute_dtype", "reduce_dtype", "lora_dropout", "loss_scale", "template", "system"})
    if (now.contains(name) && !then.contains(name)) list += (list.empty() ? "" : ", ") + std::string(name);
  return list;
}

std::vector<SettingChange> changed_config(const std::string& then, const std::string& now) {
  static constexpr std::array not_mathematics = {
      "torch_dtype", "dtype", "transformers_version", "_name_or_path", "use_cache", "architectures", "auto_map"};
  const SettingsJson before = SettingsJson::parse(then, nullptr, /*allow_exceptions=*/false),
                     after = SettingsJson::parse(now, nullptr, /*allow_exceptions=*/false);
  std::vector<SettingChange> changes;
  if (!before.is_object() || !after.is_object()) return changes;
  std::set<std::string> keys;
  for (const SettingsJson* json : {&before, &after})
    for (const auto& [key, value] : json->items()) keys.insert(key);
  for (const std::string& key : keys) {
    if (std::ranges::find(not_mathematics, key) != not_mathematics.end()) continue;
    const SettingsJson a = before.value(key, SettingsJson()), b = after.value(key, SettingsJson());
    if (a != b) changes.push_back({"config.json " + key, a.dump(), b.dump()});
  }
  return changes;
}

std::string text_of(const std::vector<SettingChange>& changes) {
  const auto short_form = [](const std::string& value) {
    const SettingsJson json = SettingsJson::parse(value, nullptr, /*allow_exceptions=*/false);
    if (json.is_string() && json.get_ref<const std::string&>().empty()) return std::string("none");
    return json.is_number_float() ? strfmt("%.6g", json.get<double>()) : value;
  };
  std::string line;
  for (const SettingChange& change : changes)
    line +=
        (line.empty() ? "" : ", ") + change.name + " " + short_form(change.before) + " -> " + short_form(change.after);
  std::erase(line, '"');
  return line;
}

}  // namespace tessera::jobs
