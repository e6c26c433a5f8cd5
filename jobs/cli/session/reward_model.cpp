// SPDX-License-Identifier: Apache-2.0
// The token that pads, as TRL chooses it, and the config that names it.
#include "jobs/cli/session/reward_model.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/file/file.hpp"
#include "io/file/text_file.hpp"
#include "io/tokenizer/tokenizer.hpp"
#include "jobs/cli/session/preferences.hpp"
#include "models/score_head.hpp"

namespace tessera::jobs {

namespace {

nlohmann::json json_in(const std::string& path) {
  if (!io::exists(path)) return nullptr;
  return nlohmann::json::parse(io::read_text(path, 64U << 20), nullptr, /*allow_exceptions=*/false);
}

/// The text of a token of tokenizer_config.json: a string, or an object with its content; "": there is none.
std::string token_text(const nlohmann::json& config, const char* name) {
  if (!config.is_object() || !config.contains(name)) return "";
  const nlohmann::json& token = config.at(name);
  if (token.is_string()) return token.get<std::string>();
  return token.is_object() && token.contains("content") && token.at("content").is_string()
             ? token.at("content").get<std::string>()
             : "";
}

/// Where the tokenizer is.
std::string tokenizer_directory(const Options& options, const std::string& model_directory) {
  const std::string word = options.text("tokenizer");
  if (word == "auto" || word == "bytes" || word.empty()) return model_directory;
  std::error_code ignored;
  return std::filesystem::is_directory(word, ignored) ? word : io::directory_of(word);
}

/// TRL's: the tokenizer's pad_token, else its eos_token; else those of config.json.
std::int64_t pad_token(const Options& options, const ModelConfig& config) {
  const std::string directory = tokenizer_directory(options, config.directory);
  const nlohmann::json tokenizer = json_in(directory + "/tokenizer_config.json");
  std::string text = token_text(tokenizer, "pad_token");
  if (text.empty()) text = token_text(tokenizer, "eos_token");
  if (!text.empty() && io::TextTokenizer::exists(directory))
    if (const auto id = io::TextTokenizer::load(directory).id_of(text)) return *id;
  const auto json = nlohmann::json::parse(config.text, nullptr, /*allow_exceptions=*/false);
  for (const char* key : {"pad_token_id", "eos_token_id"}) {
    if (!json.is_object() || !json.contains(key)) continue;
    const nlohmann::json& id = json.at(key).is_array() && !json.at(key).empty() ? json.at(key).front() : json.at(key);
    if (id.is_number_integer()) return id.get<std::int64_t>();
  }
  throw Error(ExitCode::usage, "neither the tokenizer nor config.json names the token that pads a sequence",
              config.path, "Set pad_token_id in config.json: a reward model's score is of the last token before it");
}

}  // namespace

bool learns_rewards(const Options& options) { return learns_preferences(options) && options.text("rlhf_type") == "rm"; }

bool is_reward_adapter(const AdapterConfig& adapter) {
  const auto json = nlohmann::json::parse(adapter.text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return false;
  if (json.value("task_type", nlohmann::json()) == "SEQ_CLS") return true;
  const nlohmann::json saved = json.value("modules_to_save", nlohmann::json());
  return saved.is_array() && std::ranges::find(saved, nlohmann::json("score")) != saved.end();
}

void make_reward_config(const Options& options, ModelConfig& config, PadToken pad) {
  const bool trains = (options.commands & for_inference) == 0 && learns_rewards(options);
  if (!trains && !is_reward_adapter(config.adapter)) return;
  config.new_score = !models::has_score(config.text);
  const std::int64_t token = pad == PadToken::any ? 0 : pad_token(options, config);
  config.text = models::reward_config(config.text, token, config.path);
}

void refuse_reward_model(const models::Model& model, const std::string& command, const std::string& source) {
  if (model.score < 0) return;
  throw Error(ExitCode::usage,
              source + " is of a reward model, which gives an answer a score and has no next tokens for " + command,
              "--model", "tessera eval prints how well it tells pairs apart; give a language model");
}

void check_reward_model(const models::Model& model, const Options& options, const AdapterConfig& adapter,
                        const std::string& source) {
  if (!learns_rewards(options)) {
    const std::string stage = options.text("stage");
    return refuse_reward_model(
        model, "--stage " + stage + (stage == "rlhf" ? " --rlhf_type " + options.text("rlhf_type") : ""), source);
  }
  if (!adapter.text.empty() && !is_reward_adapter(adapter))
    throw options.refuse("adapters", adapter.source() + " is of a language model: it has no score head",
                         "Merge it first (tessera convert --merge_lora true), and give the result with --model");
}

}  // namespace tessera::jobs
