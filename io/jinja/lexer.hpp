// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tokens of a template.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::io::jinja {

struct Token {
  enum class Kind : unsigned char {
    data,  // text outside of tags
    variable_begin,
    variable_end,
    block_begin,
    block_end,
    name,
    string,
    integer,
    real,
    symbol,  // an operator or punctuation
    end,
  };
  Kind kind = Kind::end;
  int line = 1;
  std::string text;  // of a string: its value
  std::int64_t integer = 0;
  double real = 0;
};

/// Splits a template, whose text is UTF-8, into tokens; the last is `end`. Throws TemplateError.
[[nodiscard]] std::vector<Token> tokenize(std::string_view text, const std::string& name);

}  // namespace tessera::io::jinja
