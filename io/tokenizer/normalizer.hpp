// SPDX-License-Identifier: Apache-2.0
#pragma once
// Normalization of a text before pre-tokenization: normal forms, prepended text, replacements.

#include <string>
#include <string_view>
#include <vector>

namespace tessera::io {

class Component;

class Normalizer {
 public:
  /// Whether a text begins its document; nothing is prepended to a text that continues one.
  enum class Position : unsigned char { beginning, inside };

  Normalizer() = default;
  /// From tokenizer.json's "normalizer": null, NFC, NFKC, Prepend, Replace of a string, and Sequences of these.
  /// Throws Error (data) for others.
  explicit Normalizer(const Component& node);

  [[nodiscard]] bool empty() const { return steps_.empty(); }
  /// The normalized text: `text` itself, or in `buffer`.
  [[nodiscard]] std::string_view apply(std::string_view text, Position position, std::string& buffer) const;
  /// "NFC, ": the normal forms among the steps.
  [[nodiscard]] std::string describe() const;
  /// True if a step may replace or insert text with this character.
  [[nodiscard]] bool touches(char character) const;

 private:
  enum class Kind : unsigned char { nfc, nfkc, prepend, replace };
  struct Step {
    Kind kind = Kind::nfc;
    std::string from, to;
  };
  void add(const Component& node);
  std::vector<Step> steps_;
};

/// `text` with every `from`, which is not empty, replaced.
void replace_all(std::string_view text, std::string_view from, std::string_view to, std::string& out);

}  // namespace tessera::io
