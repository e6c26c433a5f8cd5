// SPDX-License-Identifier: Apache-2.0
#pragma once
// The files beside a tokenizer.json: what transformers takes from them.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "io/tokenizer/added_tokens.hpp"

namespace tessera::io {

/// tokenizer_config.json, special_tokens_map.json and added_tokens.json of a directory.
class TokenizerConfig {
 public:
  /// Each file may be missing. Throws Error (data): one is not a JSON object.
  explicit TokenizerConfig(const std::string& directory);

  /// Tokens that the files name, in the order in which transformers 5 adds those that a tokenizer does not have
  /// (PreTrainedTokenizerBase._from_pretrained, TokenizersBackend.__init__). AddedToken::id is that of the files, -1
  /// where they say none. Throws Error (data): what transformers refuses: a named token (bos_token, ...) that is
  /// neither a string nor an object with "content", a list of tokens that is none, an id that is none or of two tokens.
  [[nodiscard]] std::vector<AddedToken> tokens() const;
  /// The text of `key` ("bos_token", "pad_token", ...); "" if it is absent or null. Throws Error (data): it is neither
  /// a string nor an object with "content".
  [[nodiscard]] std::string token(const char* key) const;
  /// tokenizer_class without "Fast"; "" if none is named.
  [[nodiscard]] std::string tokenizer_class() const;
  /// Whether that class gives a tokenizer a pipeline of its own.
  [[nodiscard]] bool class_has_pipeline() const;
  /// The class that "auto_map" names in code beside the tokenizer ("tokenization_x.XTokenizer"), which transformers
  /// takes where it is told to trust it; "" if none is named.
  [[nodiscard]] std::string class_beside_it() const;
  /// model_type of config.json; "" if none is named.
  [[nodiscard]] std::string model_type() const;
  [[nodiscard]] std::optional<bool> flag(const char* key) const;

 private:
  [[nodiscard]] std::string path() const { return directory_ + "/tokenizer_config.json"; }
  [[nodiscard]] AddedToken special_token(const std::string& key, const nlohmann::json& value) const;
  [[nodiscard]] std::vector<AddedToken> special_tokens() const;

  std::string directory_;
  nlohmann::json settings_;       // of tokenizer_config.json and special_tokens_map.json
  nlohmann::json added_, model_;  // added_tokens.json, config.json
};

/// The object of a JSON file; an empty one if there is no file. Throws Error (data): the file holds something else.
[[nodiscard]] nlohmann::json object_in(const std::string& path);

}  // namespace tessera::io
