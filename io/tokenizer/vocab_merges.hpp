// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tokenizers that are written as vocab.json and merges.txt alone, as GPT-2 and Qwen2 were published: the tokenizer.json
// that transformers makes of them.

#include <string>

namespace tessera::io {

/// The text of the tokenizer.json for the vocab.json and merges.txt in a directory, by the class that
/// tokenizer_config.json names (GPT2Tokenizer or Qwen2Tokenizer), or by the model_type of config.json. Added tokens are
/// those of tokenizer_config.json and added_tokens.json, and the special tokens there and in special_tokens_map.json.
/// Throws Error (data): another class; a special token that is in none of the files; a file that is damaged.
[[nodiscard]] std::string tokenizer_json_of(const std::string& directory);

}  // namespace tessera::io
