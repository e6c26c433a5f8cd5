// SPDX-License-Identifier: Apache-2.0
// Python's escapes in string literals.
#include "io/jinja/string_literal.hpp"

#include <algorithm>

#include "io/tokenizer/utf8.hpp"

namespace tessera::io::jinja {
namespace {

/// Up to `most` digits of a base from `at`; moves `at` behind them.
char32_t number_at(std::string_view text, std::size_t& at, std::size_t most, char32_t base, std::size_t& count) {
  char32_t out = 0;
  for (count = 0; count < most && at < text.size(); ++count, ++at) {
    const char c = text[at];
    const char small = static_cast<char>(c | 0x20);
    const char32_t digit = c >= '0' && c <= '9'           ? static_cast<char32_t>(c - '0')
                           : small >= 'a' && small <= 'f' ? static_cast<char32_t>(small - 'a' + 10)
                                                          : 99;
    if (digit >= base) break;
    out = out * base + digit;
  }
  return out;
}

}  // namespace

std::string unescape(std::string_view literal, std::string& out) {
  constexpr std::string_view letters = "\\'\"abfnrtv", values = "\\'\"\a\b\f\n\r\t\v";
  for (std::size_t at = 0; at < literal.size();) {
    const char c = literal[at++];
    if (c != '\\') {
      out += c;
      continue;
    }
    const char kind = literal[at];  // a literal does not end in a single backslash
    if (const auto i = letters.find(kind); i != std::string_view::npos) {
      out += values[i];
      ++at;
    } else if (kind == '\n') {
      ++at;
    } else if (kind >= '0' && kind <= '7') {
      std::size_t count = 0;
      utf8::append(out, number_at(literal, at, 3, 8, count));
    } else if (kind == 'x' || kind == 'u' || kind == 'U') {
      const std::size_t wanted = kind == 'x' ? 2 : kind == 'u' ? 4 : 8;
      std::size_t count = 0;
      const char32_t code = number_at(literal, ++at, wanted, 16, count);
      if (count < wanted) return std::string("the escape \\") + kind + " has too few digits";
      if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return "an escape is no code point";
      utf8::append(out, code);
    } else if (kind == 'N') {
      return "the escape \\N is not supported";
    } else {
      out += '\\';  // kept, as Python does
    }
  }
  return {};
}

}  // namespace tessera::io::jinja
