// SPDX-License-Identifier: Apache-2.0
// `text % arguments` and `text.format(…)`.
#include <algorithm>
#include <cmath>

#include "io/jinja/operations.hpp"
#include "io/jinja/python_text.hpp"
#include "io/tokenizer/utf8.hpp"

namespace tessera::io::jinja {
namespace {

using Kind = Value::Kind;

/// What a conversion asks for; `type` 0: none given.
struct Format {
  std::string fill = " ";
  char align = 0, sign = '-', type = 0;
  bool alternate = false, grouped = false;
  std::int64_t width = 0, precision = -1;
};

std::string padded(Runtime& runtime, const Format& format, const std::string& sign, const std::string& body,
                   char align) {
  const std::int64_t space = format.width - static_cast<std::int64_t>(count_points(sign) + count_points(body));
  if (space <= 0) return sign + body;
  if (space > runtime.options.max_output) runtime.fail("a width is too large");
  const std::int64_t left = align == '<' ? 0 : align == '^' ? space / 2 : space;
  std::string before, after;
  for (std::int64_t i = 0; i < left; ++i) before += format.fill;
  for (std::int64_t i = left; i < space; ++i) after += format.fill;
  return align == '=' ? sign + before + body : before + sign + body + after;
}

std::string grouped(std::string digits) {
  const std::size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (std::size_t i = whole; i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string digits_of(std::uint64_t value, char type) {
  if (type == 'x') return strfmt("%llx", static_cast<unsigned long long>(value));
  if (type == 'X') return strfmt("%llX", static_cast<unsigned long long>(value));
  if (type == 'o') return strfmt("%llo", static_cast<unsigned long long>(value));
  std::string out = type == 'b' ? "" : std::to_string(value);
  for (; type == 'b' && (value > 0 || out.empty()); value >>= 1) out.insert(0, 1, value & 1 ? '1' : '0');
  return out;
}

std::string real_digits(Runtime& runtime, double value, const Format& format) {
  if (std::isnan(value) || std::isinf(value)) return std::isnan(value) ? "nan" : "inf";
  if (format.precision > 1000) runtime.fail("a precision is too large");
  const int precision = format.precision < 0 ? 6 : static_cast<int>(format.precision);
  const char type = format.type == 0 ? 'g' : format.type;
  if (type == '%') return strfmt("%.*f%%", precision, value * 100);
  const std::string pattern = std::string("%") + (format.alternate ? "#" : "") + ".*" + (type == 'F' ? 'f' : type);
  std::array<char, 1600> out{};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  std::snprintf(out.data(), out.size(), pattern.c_str(), precision, value);
#pragma GCC diagnostic pop
  return out.data();
}

std::string number_text(Runtime& runtime, const Value& value, const Format& format) {
  const bool real_type = std::string_view("eEfFgG%").find(format.type) != std::string_view::npos && format.type != 0;
  const bool real = real_type || value.is(Kind::real);
  const bool negative = real ? std::signbit(value.number()) : value.integer() < 0;
  std::string body;
  if (real && format.type == 0 && format.precision < 0) {
    body = repr_of(std::fabs(value.number()));
  } else if (real) {
    if (!real_type && format.type != 0) runtime.fail(std::string("the format '") + format.type + "' is not of a float");
    body = real_digits(runtime, std::fabs(value.number()), format);
  } else {
    const auto magnitude = static_cast<std::uint64_t>(value.integer());
    body = digits_of(negative ? 0 - magnitude : magnitude, format.type);
    if (format.alternate && std::string_view("xXob").find(format.type) != std::string_view::npos && format.type != 0)
      body = std::string("0") + format.type + body;
  }
  if (format.grouped) body = grouped(std::move(body));
  const std::string sign = negative ? "-" : format.sign == '-' ? "" : std::string(1, format.sign);
  return padded(runtime, format, sign, body, format.align ? format.align : '>');
}

std::string first_points(const std::string& text, std::int64_t count) {
  return count < 0 ? text : text.substr(0, byte_of_point(text, static_cast<std::size_t>(count)));
}

// --- % ---

class PercentFormat {
 public:
  PercentFormat(Runtime& runtime, const std::string& text, const Value& arguments)
      : runtime_(runtime), text_(text), arguments_(arguments) {}

  std::string run() {
    std::string out;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c != '%') out += c;
      else out += conversion();
      if (static_cast<std::int64_t>(out.size()) > runtime_.options.max_output) break;  // the caller refuses it
    }
    const bool all_used = !arguments_.is(Kind::tuple) ? used_ > 0 || named_ : used_ == arguments_.items().size();
    if (!all_used && !arguments_.is(Kind::dict) && !arguments_.is_sequence() && !arguments_.is(Kind::undefined))
      unused();
    if (!all_used && arguments_.is(Kind::tuple)) unused();
    return out;
  }

 private:
  [[noreturn]] void unused() { runtime_.fail("not all arguments converted during string formatting"); }
  char take() {
    if (at_ >= text_.size()) runtime_.fail("incomplete format");
    return text_[at_++];
  }

  const Value& argument() {
    if (!arguments_.is(Kind::tuple)) {
      if (used_++ > 0) runtime_.fail("not enough arguments for format string");
      return arguments_;
    }
    if (used_ >= arguments_.items().size()) runtime_.fail("not enough arguments for format string");
    return arguments_.items()[used_++];
  }

  /// A number of the format, or `*`; -1 if there is none.
  std::int64_t number() {
    if (at_ < text_.size() && text_[at_] == '*') {
      ++at_;
      return integer_of(runtime_, argument(), "* of a format");
    }
    std::int64_t out = -1;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
      out = std::min<std::int64_t>(std::max<std::int64_t>(out, 0) * 10 + (text_[at_] - '0'), 1'000'000'000);
    return out;
  }

  std::string conversion() {
    Value named;
    bool has_name = false;
    if (at_ < text_.size() && text_[at_] == '(') {
      const std::size_t end = text_.find(')', at_);
      if (end == std::string::npos) runtime_.fail("incomplete format key");
      if (!arguments_.is(Kind::dict)) runtime_.fail("format requires a mapping");
      const std::string key = text_.substr(at_ + 1, end - at_ - 1);
      const Value* value = arguments_.dict().find(key);
      if (!value) runtime_.fail("the format has the key '" + key + "', and the arguments do not");
      named = *value;
      has_name = named_ = true;
      at_ = end + 1;
    }
    Format format;
    for (char c = take();; c = take()) {
      if (c == '-') format.align = '<';
      else if (c == '+' || (c == ' ' && format.sign == '-')) format.sign = c;
      else if (c == '0') format.fill = "0";
      else if (c == '#') format.alternate = true;
      else if (c != ' ') break;
    }
    --at_;
    format.width = std::max<std::int64_t>(number(), 0);
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      format.precision = std::max<std::int64_t>(number(), 0);
    }
    format.type = take();
    if (format.type == '%') return "%";
    return converted(has_name ? named : argument(), format);
  }

  std::string converted(const Value& value, Format& format) {
    const bool left = format.align == '<';
    if (format.type == 's' || format.type == 'r') {
      format.fill = " ";
      const std::string text = format.type == 's' ? text_of(runtime_, value) : repr_of(runtime_, value);
      return padded(runtime_, format, "", first_points(text, format.precision), left ? '<' : '>');
    }
    if (std::string_view("diuxXoeEfFgG").find(format.type) == std::string_view::npos)
      runtime_.fail(std::string("the conversion %") + format.type + " is not supported");
    if (!value.is_number())
      runtime_.fail(std::string("%") + format.type + " takes a number and not a " + value.type_name());
    const bool integer = std::string_view("diuxXo").find(format.type) != std::string_view::npos;
    if (integer && format.precision >= 0) runtime_.fail("a precision of an integer is not supported");
    if (left) format.fill = " ";
    format.align = left ? '<' : format.fill == "0" ? '=' : '>';
    if (!integer) return number_text(runtime_, value, format);
    if (format.type == 'i' || format.type == 'u') format.type = 'd';
    if (value.is(Kind::real) && (format.type != 'd' || !(std::fabs(value.real()) < 0x1p63)))
      runtime_.fail("the format takes an integer");
    return number_text(runtime_, value.is(Kind::real) ? Value::of(static_cast<std::int64_t>(value.real())) : value,
                       format);
  }

  Runtime& runtime_;
  const std::string& text_;
  const Value& arguments_;
  std::size_t at_ = 0, used_ = 0;
  bool named_ = false;
};

// --- format() ---

class BraceFormat {
 public:
  BraceFormat(Runtime& runtime, const Arguments& arguments) : runtime_(runtime), arguments_(arguments) {}

  std::string run(std::string_view text, int level) {
    if (level > 2) runtime_.fail("format: replacement fields are nested too deeply");
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if ((c == '{' || c == '}') && i + 1 < text.size() && text[i + 1] == c) {
        out += c;
        ++i;
      } else if (c == '{') {
        const std::size_t end = field_end(text, i + 1);
        out += field(text.substr(i + 1, end - i - 1), level);
        i = end;
      } else if (c == '}') {
        runtime_.fail("format: single '}' in the text");
      } else {
        out += c;
      }
      if (static_cast<std::int64_t>(out.size()) > runtime_.options.max_output) break;  // the caller refuses it
    }
    return out;
  }

 private:
  std::size_t field_end(std::string_view text, std::size_t at) {
    for (int open = 1; at < text.size(); ++at) {
      open += text[at] == '{' ? 1 : text[at] == '}' ? -1 : 0;
      if (open == 0) return at;
    }
    runtime_.fail("format: '{' without '}'");
  }

  std::string field(std::string_view text, int level) {
    const std::size_t name_end = std::min(text.find_first_of("!:"), text.size());
    Value value = named(text.substr(0, name_end));
    std::string_view rest = text.substr(name_end);
    if (rest.starts_with('!')) {
      const char conversion = rest.size() > 1 ? rest[1] : ' ';
      if (conversion != 's' && conversion != 'r') runtime_.fail("format: the conversion after '!' is s or r");
      value = runtime_.string(conversion == 's' ? text_of(runtime_, value) : repr_of(runtime_, value));
      rest.remove_prefix(2);
    }
    if (!rest.empty() && rest[0] != ':') runtime_.fail("format: ':' expected after the conversion");
    const std::string spec = rest.empty() ? "" : run(rest.substr(1), level + 1);
    if (spec.empty()) return text_of(runtime_, value);
    return with_spec(value, spec);
  }

  Value named(std::string_view text) {
    const std::size_t end = std::min(text.find_first_of(".["), text.size());
    const std::string first(text.substr(0, end));
    Value value = argument(first);
    for (text = text.substr(end); !text.empty();) {
      const bool dot = text[0] == '.';
      const std::size_t stop = dot ? std::min(text.find_first_of(".[", 1), text.size()) : text.find(']');
      if (stop == std::string_view::npos || (!dot && text[0] != '['))
        runtime_.fail("format: the name of a field is malformed");
      const std::string part(text.substr(1, stop - 1));
      const auto index = dot ? std::nullopt : parse_integer(runtime_, part, 10);
      value = dot ? attribute(runtime_, value, part)
                  : item(runtime_, value, index ? Value::of(*index) : runtime_.string(part));
      text = text.substr(dot ? stop : stop + 1);
    }
    return value;
  }

  Value argument(const std::string& name) {
    const auto index = name.empty() ? std::optional<std::int64_t>(next_++) : parse_integer(runtime_, name, 10);
    if (index && *index >= 0) {
      if (*index >= static_cast<std::int64_t>(arguments_.positional.size()))
        runtime_.fail("format: there is no argument " + std::to_string(*index));
      return arguments_.positional[static_cast<std::size_t>(*index)];
    }
    for (const auto& [key, value] : arguments_.named)
      if (key == name) return value;
    runtime_.fail("format: there is no argument '" + name + "'");
  }

  std::string with_spec(const Value& value, std::string_view spec) {
    Format format;
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    const std::size_t first = spec.empty() ? 0 : static_cast<std::size_t>(utf8::read(spec.data()).length);
    if (first < spec.size() && is_align(spec[first])) {
      format.fill = spec.substr(0, first);
      format.align = spec[first];
      spec.remove_prefix(first + 1);
    } else if (!spec.empty() && is_align(spec[0])) {
      format.align = spec[0];
      spec.remove_prefix(1);
    }
    const auto skip = [&spec](char c) { return spec.starts_with(c) && (spec.remove_prefix(1), true); };
    for (const char sign : {'+', '-', ' '})
      if (skip(sign)) format.sign = sign;
    format.alternate = skip('#');
    if (skip('0') && !format.align) {
      format.fill = "0";
      format.align = '=';
    }
    const auto digits = [&spec](std::int64_t none) {
      std::int64_t out = none;
      for (; !spec.empty() && spec[0] >= '0' && spec[0] <= '9'; spec.remove_prefix(1))
        out = std::min<std::int64_t>(std::max<std::int64_t>(out, 0) * 10 + (spec[0] - '0'), 1'000'000'000);
      return out;
    };
    format.width = digits(0);
    format.grouped = skip(',');
    if (skip('.')) format.precision = digits(0);
    if (!spec.empty()) format.type = spec[0];
    if (spec.size() > 1 ||
        (format.type != 0 && std::string_view("sdbxXoeEfFgG%").find(format.type) == std::string_view::npos))
      runtime_.fail("format: the specification '" + std::string(spec) + "' is not supported");
    return formatted(value, format);
  }

  std::string formatted(const Value& value, Format& format) {
    if (value.is(Kind::string)) {
      if ((format.type != 0 && format.type != 's') || format.align == '=' || format.grouped)
        runtime_.fail("format: the specification is not of a string");
      return padded(runtime_, format, "", first_points(value.text(), format.precision),
                    format.align ? format.align : '<');
    }
    if (!value.is_number() || format.type == 's')
      runtime_.fail(std::string("format: the specification is not of a ") + value.type_name());
    if (value.is_integral() && format.precision >= 0 &&
        std::string_view("eEfFgG%").find(format.type) == std::string_view::npos)
      runtime_.fail("format: a precision is not of an integer");
    if (value.is(Kind::real) && format.type == 0 && format.precision >= 0)
      runtime_.fail("format: a precision without a type is not supported", "Write the type, as in {:.2f}");
    return number_text(runtime_, value, format);
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  std::int64_t next_ = 0;
};

}  // namespace

std::string percent_format(Runtime& runtime, const std::string& format, const Value& arguments) {
  return PercentFormat(runtime, format, arguments).run();
}

std::string brace_format(Runtime& runtime, const std::string& format, const Arguments& arguments) {
  return BraceFormat(runtime, arguments).run(format, 0);
}

}  // namespace tessera::io::jinja
