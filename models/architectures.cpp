// SPDX-License-Identifier: Apache-2.0
// Classes by the ends of their names.
#include "models/architectures.hpp"

#include <algorithm>
#include <string_view>

#include "models/family.hpp"
#include "models/wrappers.hpp"

namespace tessera::models {

namespace {

constexpr const char* architectures_key = "architectures";
constexpr std::string_view other_tasks[] = {"ForTokenClassification", "ForQuestionAnswering", "ForMaskedLM",
                                            "EncoderModel"};
constexpr std::string_view language_models[] = {"ForCausalLM", "LMHeadModel", "ForSequenceClassification"};
constexpr std::string_view of_text_and_images = "ForConditionalGeneration";

template <std::size_t N>
bool ends_with_one(const std::string& name, const std::string_view (&ends)[N]) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
}

/// The object of a config.json whose model_type is known; an empty one for others.
nlohmann::json known_config(const std::string& config_json) {
  auto json = nlohmann::json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  const bool is_known = json.is_object() && json.contains("model_type") && json.at("model_type").is_string() &&
                        find_family(json.at("model_type").get<std::string>()) != nullptr;
  return is_known ? json : nlohmann::json::object();
}

}  // namespace

void refuse_other_tasks(const ConfigReader& config) {
  for (const std::string& name : config.texts(architectures_key))
    if (ends_with_one(name, other_tasks))
      config.refuse(architectures_key, "has \"" + name + "\", which is not supported",
                    "Supported: language models, and reward models (…ForSequenceClassification of one label)");
}

std::vector<std::string> other_architectures(const std::string& config_json) {
  const nlohmann::json json = known_config(config_json);
  std::vector<std::string> others;
  if (!json.contains(architectures_key) || !json.at(architectures_key).is_array()) return others;
  const std::string family = json.at("model_type").get<std::string>();
  for (const auto& entry : json.at(architectures_key)) {
    const std::string name = entry.is_string() ? entry.get<std::string>() : std::string();
    if (!name.empty() && !ends_with_one(name, language_models) && !ends_with_one(name, other_tasks) &&
        !(is_text_part(family) && name.ends_with(of_text_and_images)))
      others.push_back(name);
  }
  return others;
}

std::vector<std::string> classes_beside_model(const std::string& config_json) {
  const nlohmann::json json = known_config(config_json), map = json.value("auto_map", nlohmann::json());
  std::vector<std::string> classes;
  if (!map.is_object()) return classes;
  for (const auto& [key, name] : map.items())
    if ((key == "AutoConfig" || key.starts_with("AutoModel")) && name.is_string())
      classes.push_back(name.get<std::string>());
  return classes;
}

}  // namespace tessera::models
