// SPDX-License-Identifier: Apache-2.0
// A language model's head becomes a score.
#include "models/score_head.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "models/head.hpp"
#include "models/preference_loss.hpp"
#include "models/reward_loss.hpp"

namespace tessera::models {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view class_end = "ForSequenceClassification";

/// Families for which transformers has such a class, and the beginning of its name.
constexpr std::pair<std::string_view, const char*> reward_classes[] = {
    {"gemma2", "Gemma2"},   {"gemma3_text", "Gemma3Text"},
    {"gpt2", "GPT2"},       {"gpt_oss", "GptOss"},
    {"llama", "Llama"},     {"mistral", "Mistral"},
    {"mixtral", "Mixtral"}, {"olmo2", "Olmo2"},
    {"phi3", "Phi3"},       {"qwen2", "Qwen2"},
    {"qwen3", "Qwen3"},     {"qwen3_moe", "Qwen3Moe"},
    {"smollm3", "SmolLM3"}};

Json config_object(const std::string& config_json) {
  return Json::parse(config_json, nullptr, /*allow_exceptions=*/false);
}

/// As transformers counts them: those of "id2label", else "num_labels", else 2.
std::int64_t num_labels(const ConfigReader& config) {
  const std::size_t named = config.object("id2label").unread().size();
  return named > 0 ? static_cast<std::int64_t>(named) : config.integer({"num_labels"}, 1, max_rows, 2);
}

}  // namespace

bool has_score(const std::string& config_json) {
  const Json json = config_object(config_json);
  if (!json.is_object() || !json.contains("architectures") || !json.at("architectures").is_array()) return false;
  return std::ranges::any_of(json.at("architectures"), [](const Json& name) {
    return name.is_string() && name.get_ref<const std::string&>().ends_with(class_end);
  });
}

void make_score(Model& model, const ConfigReader& config) {
  if (const std::int64_t labels = num_labels(config); labels != 1)
    config.refuse("architectures", strfmt("is of a classifier of %ld labels", labels),
                  "Of such models those with one label, reward models, are supported");
  auto* const head = dynamic_cast<Head*>(model.modules.back().get());
  if (head == nullptr) config.refuse("architectures", "is of a reward model, which is not supported for this family");
  model.pad_token = static_cast<std::int32_t>(config.integer({"pad_token_id"}, 0, max_rows));
  model.score = head->make_score(model.params, config.number("initializer_range", 0.0, 1e3, 0.02));
  model.aliases["lm_head.weight"] = {};  // of a language model that becomes one: not read
  set_loss(model, reward_loss({.pad_token = model.pad_token}));
}

std::string reward_config(const std::string& config_json, std::int64_t pad_token, const std::string& source) {
  Json json = config_object(config_json);
  if (!json.is_object()) return config_json;  // refused where it is read
  if (has_score(config_json)) {
    json["pad_token_id"] = pad_token;  // as TRL, which trains on with the tokenizer's
    return json.dump(2) + "\n";
  }
  const std::string family = json.value("model_type", std::string());
  const auto* const found = std::ranges::find(reward_classes, family, [](const auto& entry) { return entry.first; });
  if (found == std::end(reward_classes))
    throw Error(ExitCode::usage, "there is no reward model of the family \"" + family + "\": " + source,
                "--rlhf_type rm", "Use a model of another family");
  json["architectures"] = {found->second + std::string(class_end)};
  json["id2label"] = {{"0", "LABEL_0"}};
  json["label2id"] = {{"LABEL_0", 0}};
  json.erase("num_labels");
  json["pad_token_id"] = pad_token;
  return json.dump(2) + "\n";
}

}  // namespace tessera::models
