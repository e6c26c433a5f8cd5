// SPDX-License-Identifier: Apache-2.0
// TokenizerConfig.
#include "io/tokenizer/tokenizer_config.hpp"

#include <algorithm>
#include <map>

#include "io/file/file.hpp"
#include "io/file/text_file.hpp"
#include "runtime/base/error.hpp"

namespace tessera::io {

namespace {

using SortedJson = nlohmann::json;

bool flag_of(const SortedJson& token, const char* key, bool absent) {
  const auto found = token.find(key);
  return found != token.end() && found->is_boolean() ? found->get<bool>() : absent;
}

/// A string, or the "content" of an object; none for others.
std::optional<std::string> text_of(const SortedJson& token) {
  const auto found = token.is_object() ? token.find("content") : token.end();
  const SortedJson& text = token.is_object() && found != token.end() ? *found : token;
  return text.is_string() ? std::optional<std::string>(text.get<std::string>()) : std::nullopt;
}

std::string string_under(const SortedJson& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// As transformers writes an AddedToken.
AddedToken read_token(const SortedJson& token, std::string content, bool special) {
  AddedToken read{.content = std::move(content), .id = -1, .special = special};
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

SortedJson object_in(const std::string& path) {
  if (!exists(path)) return SortedJson::object();
  SortedJson parsed = SortedJson::parse(read_text(path), nullptr, false);
  if (!parsed.is_object()) throw Error(ExitCode::data, "this is not a JSON object", path, "Fetch the file again");
  return parsed;
}

TokenizerConfig::TokenizerConfig(const std::string& directory)
    : directory_(directory),
      settings_(object_in(path())),
      added_(SortedJson::object()),
      model_(object_in(directory + "/config.json")) {
  // What added_tokens_decoder has, these two had before.
  if (settings_.contains("added_tokens_decoder")) return;
  settings_.update(object_in(directory + "/special_tokens_map.json"));
  added_ = object_in(directory + "/added_tokens.json");
}

AddedToken TokenizerConfig::special_token(const std::string& key, const SortedJson& value) const {
  std::optional<std::string> text = text_of(value);
  if (!text)
    throw Error(ExitCode::data, key + " is neither a string nor an object with its content", path(),
                "Save the tokenizer with transformers again");
  return read_token(value, std::move(*text), /*special=*/true);
}

std::string TokenizerConfig::token(const char* key) const {
  const auto found = settings_.find(key);
  return found == settings_.end() || found->is_null() ? std::string() : special_token(key, *found).content;
}

std::vector<AddedToken> TokenizerConfig::special_tokens() const {
  std::vector<AddedToken> all;
  const auto take = [&](const std::string& key, const SortedJson& value) { all.push_back(special_token(key, value)); };
  for (const char* key : named)
    if (settings_.contains(key) && !settings_[key].is_null()) take(key, settings_[key]);
  for (const auto& [key, value] : settings_.items())  // others may be no tokens: add_bos_token
    if (key.ends_with("_token") && std::ranges::find(named, key) == std::end(named) && text_of(value)) take(key, value);
  for (const char* key : {"extra_special_tokens", "additional_special_tokens", "model_specific_special_tokens"}) {
    const auto found = settings_.find(key);
    if (found == settings_.end() || found->is_null()) continue;
    if (!found->is_structured())
      throw Error(ExitCode::data, std::string(key) + " is no list of tokens", path(),
                  "Save the tokenizer with transformers again");
    for (const SortedJson& value : *found) take(key, value);
  }
  std::erase_if(all, [](const AddedToken& token) { return token.content.empty(); });
  return all;
}

std::vector<AddedToken> TokenizerConfig::tokens() const {
  std::vector<AddedToken> specials = special_tokens();
  std::map<std::int32_t, AddedToken> listed;  // by id
  const auto list = [&](const std::string& id_text, AddedToken token, const std::string& file) {
    token.id = read_id(id_text, file);
    if (const auto [known, is_new] = listed.emplace(token.id, token); !is_new)
      throw Error(ExitCode::data,
                  strfmt("%s and %s have the id %d", quote_name(known->second.content).c_str(),
                         quote_name(token.content).c_str(), token.id),
                  file, "Fetch the file again");
  };
  if (const auto found = settings_.find("added_tokens_decoder"); found != settings_.end() && !found->is_null()) {
    if (!found->is_object())
      throw Error(ExitCode::data, "added_tokens_decoder is no object", path(), "Fetch the file again");
    for (const auto& [id, token] : found->items()) {
      const std::optional<std::string> text = text_of(token);
      if (!text || text->empty())
        throw Error(ExitCode::data, "added_tokens_decoder has no token for the id " + quote_name(id), path(),
                    "Fetch the file again");
      list(id, read_token(token, *text, false), path());
    }
  }
  for (const auto& [content, id] : added_.items()) {
    const bool special = std::ranges::find(specials, content, &AddedToken::content) != specials.end();
    list(id.dump(), {.content = content, .normalized = !special, .special = special},
         directory_ + "/added_tokens.json");
  }
  std::vector<AddedToken> all;
  for (auto& [id, token] : listed) all.push_back(std::move(token));
  std::ranges::move(specials, std::back_inserter(all));
  return all;
}

std::string TokenizerConfig::tokenizer_class() const {
  std::string name = string_under(settings_, "tokenizer_class");
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return name;
}

bool TokenizerConfig::class_has_pipeline() const {
  const std::string name = tokenizer_class();
  return !name.empty() && name != "PreTrainedTokenizer" && name != "TokenizersBackend";
}

std::string TokenizerConfig::class_beside_it() const {
  const SortedJson map = settings_.value("auto_map", SortedJson());
  const SortedJson names = map.is_object() ? map.value("AutoTokenizer", SortedJson()) : map;
  std::string taken;  // of a list, which has the one in Python and then the one of `tokenizers`, the latter
  for (const SortedJson& name : names)
    if (name.is_string()) taken = name.get<std::string>();
  return taken;
}

std::string TokenizerConfig::model_type() const { return string_under(model_, "model_type"); }

std::optional<bool> TokenizerConfig::flag(const char* key) const {
  const auto found = settings_.find(key);
  return found != settings_.end() && found->is_boolean() ? std::optional<bool>(found->get<bool>()) : std::nullopt;
}

}  // namespace tessera::io
