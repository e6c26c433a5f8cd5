// SPDX-License-Identifier: Apache-2.0
// Checks the characters before and after newlines.

#include "io/tokenizer/split_point.hpp"

#include <algorithm>

#include "io/tokenizer/unicode.hpp"
#include "io/tokenizer/utf8.hpp"

namespace tessera::io {

namespace {

bool is_non_space(std::string_view character) {
  const utf8::Step step = utf8::step(character.substr(0, 4));
  return step.valid && unicode::classify(utf8::read(character.data()).code) != unicode::space;
}

/// True if the text ends with a complete non-space character.
bool ends_with_non_space(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && text.size() - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0u) == 0x80u) --at;
  return is_non_space(text.substr(at)) && utf8::step(text.substr(at)).length == static_cast<int>(text.size() - at);
}

}  // namespace

std::size_t find_split_point(std::string_view text, std::size_t least) {
  for (std::size_t from = std::max<std::size_t>(least, 2) - 1; from < text.size();) {
    const std::size_t newline = text.find('\n', from);
    if (newline == text.npos || newline + 1 >= text.size()) break;
    if (ends_with_non_space(text.substr(0, newline)) && is_non_space(text.substr(newline + 1)) &&
        text[newline + 1] != '/')
      return newline + 1;
    from = newline + 1;
  }
  return text.size();
}

}  // namespace tessera::io
