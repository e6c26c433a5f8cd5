// SPDX-License-Identifier: Apache-2.0
#pragma once
// Added tokens are found in a text before any other step: the leftmost first, of several there the longest.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera::io {

/// An entry of tokenizer.json's "added_tokens".
struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool single_word = false;  // only if no adjacent character is a word character
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // and after it
  bool normalized = false;   // searched in the normalized text
  bool special = false;      // decoding can skip it
};

/// A part of a text: an added token, or text between them (id -1).
struct Section {
  std::string_view text;
  std::int32_t id = -1;
};

class AddedTokenMatcher {
 public:
  /// Adds a token that appears in texts as `spelling`: its content, or the normalized content. Of two tokens with one
  /// spelling, the first counts.
  void add(const AddedToken& token, std::string_view spelling);
  [[nodiscard]] bool empty() const { return tokens_.empty(); }
  /// Appends the sections of `text`, which is UTF-8 and not empty. Time: length of the text times that of the longest
  /// token.
  void split(std::string_view text, std::vector<Section>& sections) const;

 private:
  struct Match {
    std::size_t length = 0;
    const AddedToken* token = nullptr;
  };
  [[nodiscard]] Match longest_at(std::string_view text, std::size_t at) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::uint64_t, std::uint32_t> edges_;  // (node, byte) -> node; 0 is the root
  std::vector<std::int32_t> ends_{-1};                      // by node: index of the token that ends there, or -1
  bool starts_[256] = {};                                   // first bytes of all tokens
};

}  // namespace tessera::io
