// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/trainable.hpp"

#include <algorithm>
#include <set>

#include "jobs/cli/options/values.hpp"
#include "jobs/cli/session/lora.hpp"
#include "jobs/cli/session/preferences.hpp"
#include "jobs/cli/session/quantization.hpp"
#include "jobs/cli/session/reward_model.hpp"
#include "jobs/cli/session/strategy.hpp"
#include "models/context.hpp"
#include "models/param_selector.hpp"
#include "models/tensor_split.hpp"

namespace tessera::jobs {

std::string close_names(const std::string& glob, const models::ParamSelector& selector) {
  const std::size_t last = glob.find_last_not_of("*.");
  const std::string near =
      suggestion(last == std::string::npos ? glob : glob.substr(0, last + 1), selector.selectable());
  return near.empty() ? "tessera inspect lists the parameters of a model directory" : near;
}

std::vector<TrainableRule> trainable_rules(const Options& options) {
  std::vector<TrainableRule> rules;
  for (const Options::Item& item : options.in_order({"freeze_parameters", "trainable_parameters"}))
    rules.push_back({item.option == "trainable_parameters", item.text, "--" + item.option + ": " + item.source});
  return rules;
}

std::vector<bool> trainable_params(const models::Model& model, const std::vector<TrainableRule>& rules) {
  std::vector<bool> trainable(model.params.size(), rules.empty() || !rules.front().trainable);
  const models::ParamSelector selector(model);
  for (const TrainableRule& rule : rules) {
    const std::vector<int> selected = selector.select(rule.glob);
    if (selected.empty())
      throw Error(ExitCode::usage, "no parameter of the model matches \"" + rule.glob + "\"", rule.source,
                  close_names(rule.glob, selector));
    for (const int param : selected) trainable[static_cast<std::size_t>(param)] = rule.trainable;
  }
  if (std::find(trainable.begin(), trainable.end(), true) == trainable.end())
    throw Error(ExitCode::usage, "every parameter of the model is frozen", rules.empty() ? "" : rules.back().source,
                "Freeze fewer, or name what to train with --trainable_parameters");
  return trainable;
}

/// Freezes what --freeze_parameters and --trainable_parameters say.
static void freeze(models::Model& model, const Options& options, DType dtype) {
  const std::vector<TrainableRule> rules = trainable_rules(options);
  if (rules.empty()) return;
  const std::vector<bool> trainable = trainable_params(model, rules);
  for (std::size_t p = 0; p < trainable.size(); ++p) {
    model.params[p].trainable = trainable[p];
    if (!trainable[p]) model.params[p].storage_dtype = dtype;
  }
}

models::Model make_training_model(const Options& options, const std::string& config_json, const std::string& source,
                                  DType dtype, const AdapterConfig& adapter) {
  models::Model model = models::make(config_json, source, dtype);
  check_reward_model(model, options, adapter, source);
  if (trains_lora(options)) add_adapters(model, options, adapter);
  else freeze(model, options, dtype);
  quantize_base(model, options, config_json, source, /*trains=*/true);
  add_preferences(model, options, config_json, source);
  models::split_tensors(model, tensor_ranks_of(options));
  models::share_rows(model, context_ranks_of(options), context_kind_of(options));
  return model;
}

FrozenChange frozen_change(const std::vector<std::string>& then, std::span<const ParamSpec> params) {
  const std::set<std::string> frozen_then(then.begin(), then.end());
  FrozenChange change;
  for (const ParamSpec& param : params)
    if (frozen_then.contains(param.name) == param.trainable)
      (param.trainable ? change.now_trained : change.now_frozen).push_back(param.name);
  return change;
}

std::string FrozenChange::text() const {
  std::string text;
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    if (names.empty()) return;
    text += (text.empty() ? "" : "; ") + std::string(what);
    for (std::size_t i = 0; i < names.size() && i < 3; ++i) text += (i == 0 ? " " : ", ") + names[i];
    if (names.size() > 3) text += strfmt(" and %zu more", names.size() - 3);
  };
  add("now trained, from zero optimizer states:", now_trained);
  add("now frozen:", now_frozen);
  return text;
}

std::int64_t num_trainable(std::span<const ParamSpec> params) {
  std::int64_t sum = 0;
  for (const ParamSpec& param : params) sum += param.trainable ? param.elements() : 0;
  return sum;
}

std::string parameters_text(std::span<const ParamSpec> params) {
  std::int64_t all = 0;
  for (const ParamSpec& param : params) all += param.elements();
  const std::int64_t trainable = num_trainable(params);
  const auto count = [](std::int64_t n) { return human_count(static_cast<double>(n)); };
  std::string text = count(all) + " parameters, " + count(trainable) + " trainable";
  if (trainable != all) text += strfmt(" (%.1f %%)", 100.0 * static_cast<double>(trainable) / static_cast<double>(all));
  return text;
}

}  // namespace tessera::jobs
