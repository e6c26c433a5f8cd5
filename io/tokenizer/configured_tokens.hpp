// SPDX-License-Identifier: Apache-2.0
#pragma once
// The files beside a tokenizer.json: what transformers adds to it.

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
  /// where they say none. Throws Error (data): an id that is none.
  [[nodiscard]] std::vector<AddedToken> tokens() const;
  /// tokenizer_class without "Fast"; "" if it is not named, or names none of a pipeline of its own.
  [[nodiscard]] std::string own_class() const;
  /// Whether transformers 5 reads a tokenizer.json as it is, whatever the class: for some model types of config.json.
  [[nodiscard]] bool reads_tokenizer_json() const;
  [[nodiscard]] std::optional<bool> flag(const char* key) const;

 private:
  std::string directory_;
  nlohmann::json settings_, specials_, added_;
};

/// A token's text: a string, or an object with "content"; "" for others.
[[nodiscard]] std::string text_of_token(const nlohmann::json& token);

}  // namespace tessera::io
