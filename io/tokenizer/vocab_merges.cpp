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
#include "io/tokenizer/other_kinds.hpp"
#include "io/tokenizer/tokenizer_config.hpp"

namespace tessera::io {

namespace {

using SortedJson = nlohmann::json;  // sorted: an ordered one takes quadratic time for a vocabulary
constexpr std::size_t largest_table = std::size_t{256} << 20;

SortedJson read_vocabulary(const std::string& path) {
  SortedJson parsed = SortedJson::parse(read_text(path, largest_table), nullptr, false);
  if (!parsed.is_object()) throw Error(ExitCode::data, "this is not a JSON object", path, "Fetch the file again");
  return parsed;
}

enum class TokenizerClass : unsigned char { gpt2, qwen2 };

class VocabMerges {
 public:
  explicit VocabMerges(std::string directory)
      : directory_(std::move(directory)), config_(directory_), vocab_(read_vocabulary(directory_ + "/vocab.json")) {
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
                              {"add_prefix_space", config_.flag("add_prefix_space").value_or(false)},
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
  TokenizerClass find_class() const {
    std::string name = config_.tokenizer_class();
    const std::string to_do = tokenizer_conversion(directory_);
    if (name.empty()) {
      const std::string type = config_.model_type();
      if (type == "gpt2") return TokenizerClass::gpt2;
      if (type.starts_with("qwen2") || type.starts_with("qwen3")) return TokenizerClass::qwen2;
      throw Error(ExitCode::data,
                  "there is no tokenizer.json, and neither tokenizer_config.json nor config.json says which kind of "
                  "tokenizer vocab.json and merges.txt are of",
                  directory_, to_do);
    }
    if (constexpr std::string_view ending = "Tokenizer"; name.ends_with(ending))
      name.resize(name.size() - ending.size());
    if (name == "GPT2") return TokenizerClass::gpt2;
    if (name == "Qwen2") return TokenizerClass::qwen2;
    throw Error(ExitCode::data,
                "there is no tokenizer.json, and vocab.json and merges.txt are of a " + quote_name(name) +
                    " tokenizer, which is not known (GPT2 and Qwen2 are)",
                directory_, to_do);
  }

  void read_added() {
    for (const AddedToken& token : config_.tokens())
      if (token.id >= 0) add(token);
      else add_known(token);                                   // others get their ids behind the vocabulary
    add_known({.content = "<|endoftext|>", .special = true});  // both classes have it where nothing is named
  }

  void add(const AddedToken& token) {
    SortedJson entry = {{"id", token.id},          {"content", token.content}, {"single_word", token.single_word},
                        {"lstrip", token.lstrip},  {"rstrip", token.rstrip},   {"normalized", token.normalized},
                        {"special", token.special}};
    if (const auto [known, fresh] = added_.emplace(token.id, std::move(entry)); !fresh)
      throw Error(ExitCode::data,
                  strfmt("%s and %s have the id %d", quote_name(known->second["content"].get<std::string>()).c_str(),
                         quote_name(token.content).c_str(), token.id),
                  directory_, "Correct vocab.json, or added_tokens_decoder of tokenizer_config.json");
    ids_[token.content] = token.id;
  }

  /// With its id in vocab.json, if it is there and not yet added.
  void add_known(AddedToken token) {
    const auto found = vocab_.find(token.content);
    if (ids_.contains(token.content) || found == vocab_.end() || !found->is_number_integer()) return;
    token.id = found->get<std::int32_t>();
    add(token);
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
    if (class_ == TokenizerClass::qwen2 || !config_.flag("add_bos_token").value_or(false))
      return {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}, {"use_regex", true}};
    std::string bos = config_.token("bos_token");
    if (bos.empty()) bos = "<|endoftext|>";
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
  TokenizerConfig config_;
  SortedJson vocab_;
  TokenizerClass class_ = TokenizerClass::gpt2;
  std::map<std::int32_t, SortedJson> added_;  // by id
  std::map<std::string, std::int32_t> ids_;   // of added tokens
};

}  // namespace

std::string tokenizer_json_of(const std::string& directory) { return VocabMerges(directory).json(); }

}  // namespace tessera::io
