// SPDX-License-Identifier: Apache-2.0
// Code points, white space, lines, splits and `repr` of texts.
#include "io/jinja/python_text.hpp"

#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "io/tokenizer/utf8.hpp"
#include "runtime/base/error.hpp"

namespace tessera::io::jinja {
namespace {

bool ends_line(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_printable(char32_t code) {
  const auto category = u_charType(static_cast<UChar32>(code));
  return code == ' ' || !(U_MASK(category) & (U_GC_C_MASK | U_GC_Z_MASK));
}

void append_escape(std::string& out, char32_t c) {
  const auto value = static_cast<unsigned>(c);
  out += value < 0x100     ? strfmt("\\x%02x", value)
         : value < 0x10000 ? strfmt("\\u%04x", value)
                           : strfmt("\\U%08x", value);
}

}  // namespace

std::size_t count_points(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u; }));
}

std::size_t byte_of_point(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += static_cast<std::size_t>(utf8::read(text.data() + at).length);
  return at;
}

std::u32string to_points(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const utf8::Point point = utf8::read(text.data() + at);
    out += point.code;
    at += static_cast<std::size_t>(point.length);
  }
  return out;
}

std::string from_points(std::u32string_view points) {
  std::string out;
  out.reserve(points.size());
  for (const char32_t c : points) utf8::append(out, c);
  return out;
}

bool is_white(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string_view stripped(std::string_view text, Side side, const std::string* characters) {
  const std::u32string set = characters ? to_points(*characters) : std::u32string();
  const auto drops = [&](char32_t c) { return characters ? set.find(c) != std::u32string::npos : is_white(c); };
  while (side != Side::right && !text.empty()) {
    const utf8::Point point = utf8::read(text.data());
    if (!drops(point.code)) break;
    text.remove_prefix(static_cast<std::size_t>(point.length));
  }
  while (side != Side::left && !text.empty()) {
    const char* last = utf8::before(text.data() + text.size());
    if (!drops(utf8::read(last).code)) break;
    text.remove_suffix(static_cast<std::size_t>(text.data() + text.size() - last));
  }
  return text;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> out;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const utf8::Point point = utf8::read(text.data() + at);
    const std::size_t line_end = at;
    at += static_cast<std::size_t>(point.length);
    if (!ends_line(point.code)) continue;
    if (point.code == '\r' && at < text.size() && text[at] == '\n') ++at;
    out.push_back(text.substr(begin, (keep_ends ? at : line_end) - begin));
    begin = at;
  }
  if (begin < text.size()) out.push_back(text.substr(begin));
  return out;
}

std::vector<std::string_view> split_white(std::string_view text, std::int64_t limit, Side from) {
  std::vector<std::string_view> out;
  const bool right = from == Side::right;
  for (;;) {
    text = stripped(text, right ? Side::right : Side::left);
    if (text.empty()) break;
    if (limit >= 0 && static_cast<std::int64_t>(out.size()) >= limit) {
      out.push_back(text);  // the other side keeps its white space
      if (right) out.back() = stripped(text, Side::right);
      break;
    }
    std::size_t cut = right ? text.size() : 0;
    while (right ? cut > 0 : cut < text.size()) {
      const char* point = right ? utf8::before(text.data() + cut) : text.data() + cut;
      const utf8::Point read = utf8::read(point);
      if (is_white(read.code)) break;
      cut = right ? static_cast<std::size_t>(point - text.data()) : cut + static_cast<std::size_t>(read.length);
    }
    out.push_back(right ? text.substr(cut) : text.substr(0, cut));
    text = right ? text.substr(0, cut) : text.substr(cut);
  }
  if (right) std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, std::int64_t limit,
                                       Side from) {
  std::vector<std::string_view> out;
  const bool right = from == Side::right;
  while (limit < 0 || static_cast<std::int64_t>(out.size()) < limit) {
    const std::size_t at = right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    out.push_back(right ? text.substr(at + separator.size()) : text.substr(0, at));
    text = right ? text.substr(0, at) : text.substr(at + separator.size());
  }
  out.push_back(text);
  if (right) std::reverse(out.begin(), out.end());
  return out;
}

std::string repr_of(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 40> buffer{};
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific).ptr;
  std::string_view text(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  std::string out;
  if (text[0] == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const std::size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1) + (count > 1 ? "." + digits.substr(1) : "");
    return out + strfmt("e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1)
    return out + digits + std::string(static_cast<std::size_t>(exponent + 1 - count), '0') + ".0";
  return out + digits.substr(0, static_cast<std::size_t>(exponent + 1)) + "." +
         digits.substr(static_cast<std::size_t>(exponent + 1));
}

std::string repr_of(std::string_view text) {
  const char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const utf8::Point point = utf8::read(text.data() + at);
    const auto length = static_cast<std::size_t>(point.length);
    const char32_t c = point.code;
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      (out += '\\') += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      (out += '\\') += c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
    } else if (is_printable(c)) {
      out += text.substr(at, length);
    } else {
      append_escape(out, c);
    }
    at += length;
  }
  return out += quote;
}

}  // namespace tessera::io::jinja
