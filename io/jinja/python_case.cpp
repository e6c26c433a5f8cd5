// SPDX-License-Identifier: Apache-2.0
// Letters' case and the classes of characters, as Python's `str` methods have them.
#include <unicode/bytestream.h>
#include <unicode/casemap.h>
#include <unicode/uchar.h>

#include <algorithm>

#include "io/jinja/python_text.hpp"
#include "io/tokenizer/utf8.hpp"
#include "runtime/base/error.hpp"

namespace tessera::io::jinja {
namespace {

enum class Mapping : unsigned char { upper, lower, title };

std::string mapped(std::string_view text, Mapping mapping) {
  const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  std::string out;
  if (ascii && mapping != Mapping::title) {
    out = text;
    const char first = mapping == Mapping::upper ? 'a' : 'A';
    for (char& c : out)
      if (c >= first && c <= first + 25) c = static_cast<char>(c ^ 0x20);
    return out;
  }
  UErrorCode status = U_ZERO_ERROR;
  const icu::StringPiece piece(text.data(), static_cast<int32_t>(text.size()));
  icu::StringByteSink<std::string> sink(&out);
  if (mapping == Mapping::upper) icu::CaseMap::utf8ToUpper("", 0, piece, sink, nullptr, status);
  if (mapping == Mapping::lower) icu::CaseMap::utf8ToLower("", 0, piece, sink, nullptr, status);
  if (mapping == Mapping::title)
    icu::CaseMap::utf8ToTitle("", U_TITLECASE_WHOLE_STRING | U_TITLECASE_NO_BREAK_ADJUSTMENT, nullptr, piece, sink,
                              nullptr, status);
  TESSERA_ASSERT(U_SUCCESS(status), "ICU maps the case of any text");
  return out;
}

bool has(char32_t c, UProperty property) { return u_hasBinaryProperty(static_cast<UChar32>(c), property) != 0; }
bool is_cased(char32_t c) { return has(c, UCHAR_CASED); }

/// True if the sigma at `at` ends a word: a cased letter before it and none after, not counting marks.
bool ends_word(const std::u32string& text, std::size_t at) {
  const auto ignorable = [](char32_t c) { return has(c, UCHAR_CASE_IGNORABLE); };
  std::size_t before = at, after = at + 1;
  while (before > 0 && ignorable(text[before - 1])) --before;
  while (after < text.size() && ignorable(text[after])) ++after;
  return before > 0 && is_cased(text[before - 1]) && (after == text.size() || !is_cased(text[after]));
}

std::string one(char32_t c, Mapping mapping) { return mapped(from_points({&c, 1}), mapping); }

bool has_case(std::string_view text, bool upper_case) {
  bool cased = false;
  for (const char32_t c : to_points(text)) {
    const bool title = u_charType(static_cast<UChar32>(c)) == U_TITLECASE_LETTER;
    if (title || has(c, upper_case ? UCHAR_LOWERCASE : UCHAR_UPPERCASE)) return false;
    cased = cased || has(c, upper_case ? UCHAR_UPPERCASE : UCHAR_LOWERCASE);
  }
  return cased;
}

bool in_class(TextClass text_class, char32_t code) {
  const auto c = static_cast<UChar32>(code);
  const auto numeric = static_cast<UNumericType>(u_getIntPropertyValue(c, UCHAR_NUMERIC_TYPE));
  const bool alpha = (U_MASK(u_charType(c)) & U_GC_L_MASK) != 0;
  switch (text_class) {
    case TextClass::space: return is_white(code);
    case TextClass::alpha: return alpha;
    case TextClass::ascii: return code < 0x80;
    case TextClass::decimal: return u_charType(c) == U_DECIMAL_DIGIT_NUMBER;
    case TextClass::digit: return numeric == U_NT_DECIMAL || numeric == U_NT_DIGIT;
    case TextClass::numeric: return numeric != U_NT_NONE;
    default: return alpha || numeric != U_NT_NONE;  // alnum
  }
}

}  // namespace

std::string upper(std::string_view text) { return mapped(text, Mapping::upper); }
std::string lower(std::string_view text) { return mapped(text, Mapping::lower); }

std::string capitalized(std::string_view text) {
  if (text.empty()) return {};
  const utf8::Point first = utf8::read(text.data());
  return one(first.code, Mapping::title) + lower(text).substr(one(first.code, Mapping::lower).size());
}

std::string title_cased(std::string_view text) {
  constexpr char32_t sigma = 0x3A3;
  const std::u32string points = to_points(text);
  std::string out;
  bool in_word = false;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (in_word && points[i] == sigma) out += ends_word(points, i) ? "\xCF\x82" : "\xCF\x83";
    else out += one(points[i], in_word ? Mapping::lower : Mapping::title);
    in_word = is_cased(points[i]);
  }
  return out;
}

std::string swapped_case(std::string_view text) {
  std::string out;
  for (const char32_t c : to_points(text)) out += one(c, has(c, UCHAR_UPPERCASE) ? Mapping::lower : Mapping::upper);
  return out;
}

bool in_text_class(TextClass text_class, std::string_view text) {
  if (text_class == TextClass::upper || text_class == TextClass::lower)
    return has_case(text, text_class == TextClass::upper);
  if (text.empty()) return text_class == TextClass::ascii;
  const std::u32string points = to_points(text);
  return std::all_of(points.begin(), points.end(), [&](char32_t c) { return in_class(text_class, c); });
}

}  // namespace tessera::io::jinja
