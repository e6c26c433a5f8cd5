// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/param_groups.hpp"

#include <cmath>

#include "jobs/cli/options/values.hpp"
#include "jobs/cli/session/trainable.hpp"
#include "models/param_selector.hpp"

namespace tessera::jobs {

ParamGroup parse_param_group(const std::string& text, const std::string& source) {
  constexpr const char* form = "Write it as \"GLOB lr_scale=FACTOR weight_decay=VALUE\", with one or both values";
  const auto refuse = [&](const std::string& what) {
    return Error(ExitCode::usage, "the group \"" + text + "\" " + what, source, form);
  };
  const std::vector<std::string> words = split_words(text, ' ');
  if (words.size() < 2) throw refuse("has no value");
  ParamGroup group{.glob = words[0]};
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    const std::string key = words[i].substr(0, equals);
    std::optional<double>* const value = key == "lr_scale"       ? &group.lr_scale
                                         : key == "weight_decay" ? &group.weight_decay
                                                                 : nullptr;
    if (value == nullptr) throw refuse("gives \"" + key + "\", which is neither lr_scale nor weight_decay");
    if (value->has_value()) throw refuse("gives " + key + " twice");
    if (equals != std::string::npos) *value = parse_real(words[i].substr(equals + 1));
    if (!value->has_value() || !std::isfinite(**value) || **value < 0)
      throw refuse("has a " + key + " that is not a number of at least 0");
  }
  return group;
}

std::string lora_plus_group(const Options& options) {
  return "*.lora_B.weight lr_scale=" + options.text("lorap_lr_ratio");
}

std::vector<train::ParamRates> param_rates(const Options& options, const models::Model& model, double weight_decay) {
  std::vector<Options::Item> items = options.in_order({"param_groups"});
  if (options.has("lorap_lr_ratio"))
    items.insert(items.begin(),
                 {"lorap_lr_ratio", lora_plus_group(options), options.value("lorap_lr_ratio").source.text});
  if (items.empty()) return {};
  std::vector<train::ParamRates> rates;
  for (const ParamSpec& param : model.params) rates.push_back({.weight_decay = param.decay ? weight_decay : 0});
  const models::ParamSelector selector(model);
  for (const Options::Item& item : items) {
    const std::string source = "--param_groups: " + item.source;
    const ParamGroup group = parse_param_group(item.text, source);
    const std::vector<int> selected = selector.select(group.glob);
    if (selected.empty())
      throw Error(ExitCode::usage, "no parameter of the model matches \"" + group.glob + "\"", source,
                  close_names(group.glob, selector));
    for (const int param : selected) {
      train::ParamRates& of = rates[static_cast<std::size_t>(param)];
      of.lr_factor = group.lr_scale.value_or(of.lr_factor);
      of.weight_decay = group.weight_decay.value_or(of.weight_decay);
    }
  }
  return rates;
}

}  // namespace tessera::jobs
