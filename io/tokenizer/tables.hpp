// SPDX-License-Identifier: Apache-2.0
#pragma once
// A parsed tokenizer.json. Immutable.

#include <unordered_map>

#include "io/tokenizer/added_tokens.hpp"
#include "io/tokenizer/bpe_model.hpp"
#include "io/tokenizer/normalizer.hpp"
#include "io/tokenizer/post_processor.hpp"
#include "io/tokenizer/pre_tokenizer.hpp"
#include "io/tokenizer/token_decoder.hpp"

namespace tessera::io {

struct TokenizerTables {
  /// From a tokenizer.json's text, and tokens that are added if it does not have them (TokenizerConfig::tokens). Throws
  /// Error (data) as TextTokenizer::parse does.
  TokenizerTables(std::string_view json, const std::string& where, const std::vector<AddedToken>& more = {});

  [[nodiscard]] const AddedToken* added(std::int32_t id) const;
  [[nodiscard]] bool has(std::int32_t id) const { return added(id) != nullptr || model.vocabulary().has(id); }

  PreTokenizer pre_tokenizer;
  BpeModel model;
  Normalizer normalizer;
  PostProcessor post_processor;
  TokenDecoder decoder;
  std::vector<AddedToken> added_tokens;
  std::unordered_map<std::int32_t, std::size_t> added_by_id;
  AddedTokenMatcher raw, normalized;  // searched in the text before and after normalization
  std::int32_t size = 0;              // one more than the largest id
  std::uint64_t hash = 0;
  /// True if a text can be split after a newline between two non-space characters, and its parts encoded separately,
  /// the later ones as `inside`, with the same ids.
  bool is_splittable = false;

 private:
  void read_added_tokens(const Component& node, const std::vector<AddedToken>& more);
};

}  // namespace tessera::io
