// SPDX-License-Identifier: Apache-2.0
#pragma once
// The two large tables of a tokenizer.json, model.vocab and model.merges, read from its text without copies: a JSON
// parser takes more time for them than all the rest of loading.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/tokenizer/tokenizer_json.hpp"
#include "runtime/base/error.hpp"

namespace tessera::io {

/// The error of a tokenizer.json that is not in the form of one.
[[nodiscard]] Error damaged_tokenizer(const std::string& what, const std::string& where);

class TokenTableReader {
 public:
  /// `text` is UTF-8. All must outlive it.
  TokenTableReader(std::string_view text, const std::string& where, TokenizerJson& out)
      : text_(text), where_(where), out_(out) {}
  /// Reads the tables and returns the text with {} and [] in their places. Throws Error (data): a table is not in its
  /// form. What is outside of them is not checked.
  [[nodiscard]] std::string rest();
  /// The place in the text of a byte of the rest.
  [[nodiscard]] std::size_t place(std::size_t at) const;

 private:
  void read_vocab();
  void read_merges();
  void read_merge();
  void add_merge(std::string_view text);
  [[nodiscard]] std::int64_t read_id(std::string_view token);
  [[nodiscard]] std::string_view read_string();
  void unescape(std::string& made);
  [[nodiscard]] char32_t hex_code();
  [[nodiscard]] char next();
  void skip_string();
  [[nodiscard]] Error refuse(const std::string& what) const { return damaged_tokenizer(what, where_); }
  [[nodiscard]] Error not_json() const { return refuse("not JSON at byte " + std::to_string(at_ + 1)); }

  std::string_view text_;
  const std::string& where_;
  TokenizerJson& out_;
  std::size_t at_ = 0;
  std::vector<std::pair<std::size_t, std::size_t>> cuts_;  // a place in the rest, and the bytes left out before it
};

}  // namespace tessera::io
