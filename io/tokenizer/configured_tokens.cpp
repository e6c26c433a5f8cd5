// SPDX-License-Identifier: Apache-2.0
// TokenizerConfig.
#include "io/tokenizer/configured_tokens.hpp"

#include <algorithm>
#include <map>

#include "io/file/file.hpp"
#include "io/file/text_file.hpp"
#include "runtime/base/error.hpp"

namespace tessera::io {

namespace {

using SortedJson = nlohmann::json;

SortedJson object_at(const std::string& path) {
  if (!exists(path)) return SortedJson::object();
  SortedJson parsed = SortedJson::parse(read_text(path), nullptr, false);
  if (!parsed.is_object()) throw Error(ExitCode::data, "this is not a JSON object", path, "Fetch the file again");
  return parsed;
}

bool flag_of(const SortedJson& token, const char* key, bool absent) {
  const auto found = token.find(key);
  return found != token.end() && found->is_boolean() ? found->get<bool>() : absent;
}

/// Of a text, or of an object as transformers writes an AddedToken.
AddedToken read_token(const SortedJson& token, bool special) {
  AddedToken read{.content = text_of_token(token), .id = -1, .special = special};
  if (!token.is_object()) return read;
  read.special = special || flag_of(token, "special", false);
  read.single_word = flag_of(token, "single_word", false);
  read.lstrip = flag_of(token, "lstrip", false);
  read.rstrip = flag_of(token, "rstrip", false);
  read.normalized = flag_of(token, "normalized", !read.special);
  return read;
}

std::int32_t read_id(const std::string& text, const std::string& path) {
  if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != text.npos)
    throw Error(ExitCode::data, "an added token has an id that is none: " + quote_name(text), path,
                "Fetch the file again");
  return std::stoi(text);
}

constexpr const char* named[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                 "pad_token", "cls_token", "mask_token"};

}  // namespace

std::string text_of_token(const SortedJson& token) {
  const SortedJson& text = token.is_object() && token.contains("content") ? token["content"] : token;
  return text.is_string() ? text.get<std::string>() : std::string();
}

TokenizerConfig::TokenizerConfig(const std::string& directory)
    : directory_(directory), settings_(object_at(directory + "/tokenizer_config.json")) {
  // What added_tokens_decoder has, these two had before.
  if (settings_.contains("added_tokens_decoder")) return;
  specials_ = object_at(directory + "/special_tokens_map.json");
  added_ = object_at(directory + "/added_tokens.json");
}

std::vector<AddedToken> TokenizerConfig::tokens() const {
  SortedJson settings = settings_;
  if (specials_.is_object()) settings.update(specials_);
  std::vector<AddedToken> specials;
  const auto take = [&](const SortedJson& token) {
    if (AddedToken read = read_token(token, /*special=*/true); !read.content.empty())
      specials.push_back(std::move(read));
  };
  for (const char* key : named)
    if (settings.contains(key)) take(settings[key]);
  for (const auto& [key, token] : settings.items())
    if (key.ends_with("_token") && std::ranges::find(named, key) == std::end(named)) take(token);
  for (const char* key : {"extra_special_tokens", "additional_special_tokens", "model_specific_special_tokens"})
    if (settings.contains(key) && settings[key].is_structured())
      for (const SortedJson& token : settings[key]) take(token);

  std::map<std::int32_t, AddedToken> listed;  // by id
  if (const auto found = settings.find("added_tokens_decoder"); found != settings.end() && found->is_object())
    for (const auto& [id, token] : found->items())
      listed[read_id(id, directory_ + "/tokenizer_config.json")] = read_token(token, false);
  if (added_.is_object())
    for (const auto& [content, id] : added_.items()) {
      const bool special = std::ranges::find(specials, content, &AddedToken::content) != specials.end();
      listed[read_id(id.dump(), directory_ + "/added_tokens.json")] = {
          .content = content, .normalized = !special, .special = special};
    }
  std::vector<AddedToken> all;
  for (auto& [id, token] : listed) {
    token.id = id;
    if (!token.content.empty()) all.push_back(std::move(token));
  }
  std::ranges::move(specials, std::back_inserter(all));
  return all;
}

std::string TokenizerConfig::own_class() const {
  const auto found = settings_.find("tokenizer_class");
  std::string name = found != settings_.end() ? text_of_token(*found) : std::string();
  if (name == "PreTrainedTokenizerFast" || name == "TokenizersBackend") return {};
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return name;
}

bool TokenizerConfig::reads_tokenizer_json() const {
  const SortedJson config = object_at(directory_ + "/config.json");
  const std::string type = text_of_token(config.value("model_type", SortedJson()));
  // Of the families here, those that TOKENIZER_MAPPING_NAMES of tokenization_auto.py has with TokenizersBackend.
  constexpr const char* types[] = {"mistral", "mixtral", "mistral3", "phi3", "granite", "olmo2"};
  return std::ranges::find(types, type) != std::end(types);
}

std::optional<bool> TokenizerConfig::flag(const char* key) const {
  const auto found = settings_.find(key);
  return found != settings_.end() && found->is_boolean() ? std::optional<bool>(found->get<bool>()) : std::nullopt;
}

}  // namespace tessera::io
