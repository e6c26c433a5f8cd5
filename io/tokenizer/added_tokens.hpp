#pragma once
// Added tokens: found in a text before anything else is done to it, leftmost first, the longest of those.

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
  bool single_word = false;  // only where no word character is its neighbour
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and behind it
  bool normalized = false;   // is looked for in the normalised text
  bool special = false;      // left out of decoded text on demand
};

/// A part of a text: an added token, or text between them (id -1).
struct Section {
  std::string_view text;
  std::int32_t id = -1;
};

class AddedTokenMatcher {
 public:
  /// Looks for `spelling` (the content, or what the normaliser makes of it) from now on; of two with
  /// one spelling, the first counts.
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
  bool starts_[256] = {};                                   // bytes that some token begins with
};

}  // namespace tessera::io
