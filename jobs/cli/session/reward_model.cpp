// SPDX-License-Identifier: Apache-2.0
// The token that pads, as TRL chooses it, and the config that names it.
#include "jobs/cli/session/reward_model.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "io/file/file.hpp"
#include "io/tokenizer/tokenizer.hpp"
#include "io/tokenizer/tokenizer_config.hpp"
#include "jobs/cli/session/preferences.hpp"
#include "models/score_head.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

/// Where the tokenizer is.
std::string tokenizer_directory(const Options& options, const std::string& model_directory) {
  const std::string word = options.text("tokenizer");
  if (word == "auto" || word == "bytes" || word.empty()) return model_directory;
  std::error_code ignored;
  return std::filesystem::is_directory(word, ignored) ? word : io::directory_of(word);
}

/// W096: a reward model's scores are of the tokens before its own pad token, and another program pads with the
/// tokenizer's.
void warn_of_pad_token(const Options& options, const ModelConfig& config) {
  const std::string directory = tokenizer_directory(options, config.directory);
  const std::string text = io::TokenizerConfig(directory).token("pad_token");
  if (text.empty() || !io::TextTokenizer::exists(directory)) return;
  const std::optional<std::int32_t> pad = io::TextTokenizer::load(directory).id_of(text);
  const auto json = nlohmann::json::parse(config.text, nullptr, /*allow_exceptions=*/false);
  const nlohmann::json own = json.is_object() ? json.value("pad_token_id", nlohmann::json()) : nlohmann::json();
  if (!pad || own != *pad)
    log::warn(96, strfmt("pad_token_id of %s is %s, and the tokenizer's pad_token \"%s\" is %s: a score is of the last "
                         "token before config.json's, in programs that pad with the tokenizer's too",
                         config.path.c_str(), own.dump().c_str(), text.c_str(),
                         pad ? std::to_string(*pad).c_str() : "none of its tokens"));
}

/// TRL's: the tokenizer's pad_token, else its eos_token; else those of config.json. One that is added to the tokenizer
/// and that the model's vocabulary has no place for is refused: transformers would not load such a model.
std::int64_t pad_token(const Options& options, const ModelConfig& config) {
  const std::string directory = tokenizer_directory(options, config.directory);
  const io::TokenizerConfig tokenizer(directory);
  const auto json = nlohmann::json::parse(config.text, nullptr, /*allow_exceptions=*/false);
  const nlohmann::json size = json.is_object() ? json.value("vocab_size", nlohmann::json()) : nlohmann::json();
  for (const char* name : {"pad_token", "eos_token"}) {
    const std::string text = tokenizer.token(name);
    if (text.empty() || !io::TextTokenizer::exists(directory)) continue;
    const std::int64_t id = io::TextTokenizer::load(directory).id_of(text).value_or(-1);  // all that it names it has
    if (id >= 0 && !(size.is_number_integer() && id >= size.get<std::int64_t>())) return id;
    throw Error(ExitCode::data,
                strfmt("%s \"%s\" is not a token of the model, whose vocabulary has %s", name, text.c_str(),
                       size.dump().c_str()),
                directory + "/tokenizer_config.json",
                "Name one of its tokens: a reward model's score is of the last token before the one that pads");
  }
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
  if (!trains && !is_reward_adapter(config.adapter)) {
    if (pad == PadToken::of_tokenizer && (options.commands & for_eval) != 0 && models::has_score(config.text))
      warn_of_pad_token(options, config);
    return;
  }
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
