// SPDX-License-Identifier: Apache-2.0
#pragma once
// UTF-8: reading, writing and repairing.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::io::utf8 {

/// A code point and its bytes.
struct Point {
  char32_t code = 0;
  int length = 0;
};

/// The code point that begins at `at`; the text is UTF-8.
[[nodiscard]] inline Point read(const char* at) {
  const auto byte = [at](int i) { return static_cast<unsigned char>(at[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1Fu) << 6 | (byte(1) & 0x3Fu), 2};
  if (first < 0xF0) return {(first & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu), 3};
  return {(first & 0x07u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu), 4};
}

/// The beginning of the code point before `at`; the text is UTF-8 and has one there.
[[nodiscard]] inline const char* before(const char* at) {
  do --at;
  while ((static_cast<unsigned char>(*at) & 0xC0u) == 0x80u);
  return at;
}

/// Appends a code point: not a surrogate, below U+110000.
void append(std::string& text, char32_t code);

/// The beginning of `text`, which is not empty: `length` bytes that are a code point, or, if not `valid`, the longest
/// part of one, at least one byte (Unicode 3.9, "substitution of maximal subparts"). `open`: the text ends inside a
/// code point.
struct Step {
  int length = 1;
  bool valid = false, open = false;
};
[[nodiscard]] Step step(std::string_view text);

/// Bytes of the longest prefix that is UTF-8.
[[nodiscard]] std::size_t valid_prefix(std::string_view text);

/// What a text consists of.
struct Census {
  std::int64_t characters = 0;  // code points and invalid parts
  std::int64_t invalid = 0;     // maximal parts that are not UTF-8
  void add(const Census& more) { characters += more.characters, invalid += more.invalid; }
};
[[nodiscard]] Census census(std::string_view text);

/// The text with U+FFFD for every maximal invalid part.
[[nodiscard]] std::string repaired(std::string_view text);

}  // namespace tessera::io::utf8
