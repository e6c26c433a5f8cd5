// SPDX-License-Identifier: Apache-2.0
#pragma once
// The pre-tokenizers Digits, and Split by a plain string: they split a section before anything else does.

#include <string>

namespace tessera::io {

class Component;

class OuterSplit {
 public:
  /// Of two adjacent parts, one of which is a match: what is joined.
  enum class Behavior : unsigned char { isolated, merged_with_previous, merged_with_next, contiguous };

  OuterSplit() = default;  // does not split
  /// From a Digits node, or a Split node whose pattern is a String. Throws Error (data) for behaviors that lose text.
  explicit OuterSplit(const Component& node);

  [[nodiscard]] bool splits() const { return by_digits_ || !pattern_.empty(); }
  /// True if the pattern is a string with this character.
  [[nodiscard]] bool matches(char character) const { return pattern_.find(character) != pattern_.npos; }
  [[nodiscard]] std::string describe() const;
  /// The end of the part that begins at `at`, which is before `end` and where a part begins; [at, end) is UTF-8.
  [[nodiscard]] const char* next(const char* at, const char* end) const;

 private:
  [[nodiscard]] const char* next_digits(const char* at, const char* end) const;

  bool by_digits_ = false;
  std::string pattern_;  // not empty: a string that is searched
  Behavior behavior_ = Behavior::isolated;
};

}  // namespace tessera::io
