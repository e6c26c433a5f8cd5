// SPDX-License-Identifier: Apache-2.0
// Checking and repairing UTF-8.

#include "io/tokenizer/utf8.hpp"

#include <algorithm>
#include <cstring>

namespace tessera::io::utf8 {

void append(std::string& text, char32_t code) {
  const auto tail = [code](int shift) { return static_cast<char>(0x80u | (code >> shift & 0x3Fu)); };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0u | code >> 6);
    text += tail(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0u | code >> 12);
    text += tail(6);
    text += tail(0);
  } else {
    text += static_cast<char>(0xF0u | code >> 18);
    text += tail(12);
    text += tail(6);
    text += tail(0);
  }
}

Step step(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {1, true, false};
  const int wanted = first >= 0xC2 && first <= 0xDF   ? 2
                     : first >= 0xE0 && first <= 0xEF ? 3
                     : first >= 0xF0 && first <= 0xF4 ? 4
                                                      : 0;
  if (wanted == 0) return {1, false, false};
  // The second byte's range excludes overlong forms, surrogates and code points beyond U+10FFFF.
  const unsigned least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  for (int i = 1; i < wanted; ++i) {
    if (static_cast<std::size_t>(i) >= text.size()) return {i, false, true};
    const auto next = static_cast<unsigned char>(text[static_cast<std::size_t>(i)]);
    if (next < (i == 1 ? least : 0x80u) || next > (i == 1 ? most : 0xBFu)) return {i, false, false};
  }
  return {wanted, true, false};
}

std::size_t valid_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (at + 8 <= text.size()) {  // eight ASCII bytes at once
      std::uint64_t word = 0;
      std::memcpy(&word, text.data() + at, 8);
      if ((word & 0x8080808080808080ull) == 0) {
        at += 8;
        continue;
      }
    }
    const Step here = step(text.substr(at, 4));
    if (!here.valid) break;
    at += static_cast<std::size_t>(here.length);
  }
  return at;
}

Census census(std::string_view text) {
  Census all;
  while (!text.empty()) {
    const std::string_view valid = text.substr(0, valid_prefix(text));
    all.characters += std::count_if(valid.begin(), valid.end(), [](char c) { return (c & '\xC0') != '\x80'; });
    text.remove_prefix(valid.size());
    if (text.empty()) break;
    text.remove_prefix(static_cast<std::size_t>(step(text).length));
    ++all.characters, ++all.invalid;
  }
  return all;
}

std::string repaired(std::string_view text) {
  std::string good;
  good.reserve(text.size());
  while (!text.empty()) {
    const std::size_t valid = valid_prefix(text);
    good += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    append(good, 0xFFFD);
    text.remove_prefix(static_cast<std::size_t>(step(text).length));
  }
  return good;
}

}  // namespace tessera::io::utf8
