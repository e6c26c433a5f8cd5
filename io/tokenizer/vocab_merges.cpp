// SPDX-License-Identifier: Apache-2.0
// As transformers converts slow tokenizers (GPT2Converter, Qwen2Converter in convert_slow_tokenizer.py).

#include "io/tokenizer/vocab_merges.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "io/file/file.hpp"
#include "io/file/text_file.hpp"
#include "io/tokenizer/configured_tokens.hpp"
#include "io/tokenizer/other_kinds.hpp"

namespace tessera::io {

namespace {

using SortedJson = nlohmann::json;  // sorted: an ordered one takes quadratic time for a vocabulary
constexpr std::size_t largest_table = std::size_t{256} << 20;

SortedJson object_in(const std::string& path, bool required = false) {
  if (!required && !exists(path)) return SortedJson::object();
  SortedJson parsed = SortedJson::parse(read_text(path, largest_table), nullptr, false);
  if (!parsed.is_object()) throw Error(ExitCode::data, "this is not a JSON object", path, "Fetch the file again");
  return parsed;
}

enum class TokenizerClass : unsigned char { gpt2, qwen2 };

class VocabMerges {
 public:
  explicit VocabMerges(std::string directory)
      : directory_(std::move(directory)),
        settings_(object_in(directory_ + "/tokenizer_config.json")),
        specials_(object_in(directory_ + "/special_tokens_map.json")),
        vocab_(object_in(directory_ + "/vocab.json", /*required=*/true)) {
    class_ = find_class();
    read_added();
  }

  /// Moves the vocabulary away.
  [[nodiscard]] std::string json() {
    const bool qwen2 = class_ == TokenizerClass::qwen2;
    SortedJson made = {
        {"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}, {"added_tokens", SortedJson::array()}};
    for (auto& [id, token] : added_) made["added_tokens"].push_back(std::move(token));
    made["normalizer"] = qwen2 ? SortedJson{{"type", "NFC"}} : SortedJson(nullptr);
    const SortedJson bytes = {{"type", "ByteLevel"},
                              {"add_prefix_space", flag("add_prefix_space")},
                              {"trim_offsets", true},
                              {"use_regex", !qwen2}};
    made["pre_tokenizer"] = qwen2 ? SortedJson{{"type", "Sequence"}, {"pretokenizers", {split(), bytes}}} : bytes;
    made["post_processor"] = post_processor();
    made["decoder"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
    made["model"] = {{"type", "BPE"}, {"byte_fallback", false}, {"ignore_merges", false}, {"merges", merges()}};
    made["model"]["vocab"] = std::move(vocab_);
    return made.dump();
  }

 private:
  [[nodiscard]] bool flag(const char* key) const {
    const auto found = settings_.find(key);
    return found != settings_.end() && found->is_boolean() && found->get<bool>();
  }

  TokenizerClass find_class() const {
    std::string name = text_of_token(settings_.value("tokenizer_class", SortedJson()));
    const std::string to_do = tokenizer_conversion(directory_);
    if (name.empty()) {
      const std::string type = text_of_token(object_in(directory_ + "/config.json").value("model_type", SortedJson()));
      if (type == "gpt2") return TokenizerClass::gpt2;
      if (type.starts_with("qwen2") || type.starts_with("qwen3")) return TokenizerClass::qwen2;
      throw Error(ExitCode::data,
                  "there is no tokenizer.json, and neither tokenizer_config.json nor config.json says which kind of "
                  "tokenizer vocab.json and merges.txt are of",
                  directory_, to_do);
    }
    for (const char* ending : {"Fast", "Tokenizer"})
      if (name.ends_with(ending)) name.resize(name.size() - std::string_view(ending).size());
    if (name == "GPT2") return TokenizerClass::gpt2;
    if (name == "Qwen2") return TokenizerClass::qwen2;
    throw Error(ExitCode::data,
                "there is no tokenizer.json, and vocab.json and merges.txt are of a " + quote_name(name) +
                    " tokenizer, which is not known (GPT2 and Qwen2 are)",
                directory_, to_do);
  }

  void add(std::int64_t id, const std::string& content, SortedJson flags) {
    SortedJson token = {{"id", id}, {"content", content}};
    for (const char* name : {"single_word", "lstrip", "rstrip", "normalized", "special"})
      token[name] = flags.is_object() && flags.contains(name) && flags[name].is_boolean() && flags[name].get<bool>();
    if (!added_.emplace(id, std::move(token)).second)
      throw Error(ExitCode::data, strfmt("two added tokens have the id %ld", id), directory_, "Fetch the files again");
    ids_[content] = id;
  }

  /// Every special token that the configuration names, in its order.
  [[nodiscard]] std::vector<std::string> special_tokens() const {
    std::vector<std::string> all;
    const auto take = [&](const SortedJson& token) {
      if (std::string content = text_of_token(token); !content.empty()) all.push_back(std::move(content));
    };
    for (const SortedJson* from : {&settings_, &specials_}) {
      for (const char* key :
           {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
        if (const auto found = from->find(key); found != from->end()) take(*found);
      for (const char* key : {"additional_special_tokens", "extra_special_tokens"})
        if (const auto found = from->find(key); found != from->end() && found->is_array())
          for (const SortedJson& token : *found) take(token);
    }
    return all;
  }

  void read_added() {
    const std::vector<std::string> specials = special_tokens();
    const auto is_special = [&](const std::string& content) {
      return std::find(specials.begin(), specials.end(), content) != specials.end();
    };
    const SortedJson listed = settings_.value("added_tokens_decoder", SortedJson::object());
    for (const auto& [id, token] : listed.items()) {
      if (id.empty() || id.size() > 9 || id.find_first_not_of("0123456789") != id.npos)
        throw Error(ExitCode::data, "added_tokens_decoder has an id that is none: " + quote_name(id), directory_,
                    "Fetch tokenizer_config.json again");
      add(std::stoll(id), text_of_token(token), token);
    }
    const SortedJson added = object_in(directory_ + "/added_tokens.json");
    for (const auto& [content, id] : added.items()) {
      if (ids_.contains(content)) continue;
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() > 0x7FFFFFFFu)
        throw Error(ExitCode::data, quote_name(content) + " has no id", directory_ + "/added_tokens.json",
                    "Fetch the file again");
      add(id.get<std::int64_t>(), content, {{"normalized", !is_special(content)}, {"special", is_special(content)}});
    }
    for (const std::string& content : specials) (void)add_special(content);  // others: TokenizerConfig::tokens
    (void)add_special("<|endoftext|>");  // both classes have it where nothing is named
  }

  /// False if the vocabulary does not have it.
  bool add_special(const std::string& content) {
    const auto found = vocab_.find(content);
    if (ids_.contains(content) || found == vocab_.end() || !found->is_number_integer()) return false;
    add(found->get<std::int64_t>(), content, {{"special", true}});
    return true;
  }

  static SortedJson split() {
    return {
        {"type", "Split"},
        {"pattern",
         {{"Regex",
           R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}}},
        {"behavior", "Isolated"},
        {"invert", false}};
  }

  /// GPT-2's add_bos_token puts the token before every text.
  [[nodiscard]] SortedJson post_processor() const {
    const std::string bos =
        text_of_token(settings_.value("bos_token", specials_.value("bos_token", SortedJson("<|endoftext|>"))));
    if (class_ == TokenizerClass::qwen2 || !flag("add_bos_token"))
      return {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}, {"use_regex", true}};
    const auto id = ids_.find(bos);
    if (id == ids_.end())
      throw Error(ExitCode::data, "add_bos_token is set, and there is no bos_token", directory_,
                  "Name it in tokenizer_config.json");
    const SortedJson token = {{"SpecialToken", {{"id", bos}, {"type_id", 0}}}},
                     text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    return {{"type", "TemplateProcessing"},
            {"single", SortedJson::array({token, text})},
            {"pair", SortedJson::array()},
            {"special_tokens",
             {{bos, {{"id", bos}, {"ids", SortedJson::array({id->second})}, {"tokens", SortedJson::array({bos})}}}}}};
  }

  [[nodiscard]] SortedJson merges() const {
    SortedJson all = SortedJson::array();
    std::istringstream lines(read_text(directory_ + "/merges.txt", largest_table));
    for (std::string line; std::getline(lines, line);) {
      if (line.ends_with('\r')) line.pop_back();
      if (!line.empty() && !(all.empty() && line.starts_with("#version"))) all.push_back(std::move(line));
    }
    return all;
  }

  std::string directory_;
  SortedJson settings_, specials_, vocab_;
  TokenizerClass class_ = TokenizerClass::gpt2;
  std::map<std::int64_t, SortedJson> added_;  // by id
  std::map<std::string, std::int64_t> ids_;   // of added tokens
};

}  // namespace

std::string tokenizer_json_of(const std::string& directory) { return VocabMerges(directory).json(); }

}  // namespace tessera::io
