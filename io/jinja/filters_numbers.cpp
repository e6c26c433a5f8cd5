// SPDX-License-Identifier: Apache-2.0
// Filters of numbers, and texts read as numbers.
#include <cmath>
#include <cstdlib>

#include "io/jinja/builtins.hpp"
#include "io/jinja/operations.hpp"
#include "io/jinja/python_text.hpp"

namespace tessera::io::jinja {
namespace {

using Kind = Value::Kind;

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char small = static_cast<char>(c | 0x20);
  return small >= 'a' && small <= 'z' ? small - 'a' + 10 : 99;
}

/// int() of a float.
std::optional<std::int64_t> truncated(Runtime& runtime, double value) {
  if (std::isnan(value) || std::isinf(value)) return std::nullopt;
  value = std::trunc(value);
  if (value < -0x1p63 || value >= 0x1p63) runtime.fail("an integer does not fit 64 bits");
  return static_cast<std::int64_t>(value);
}

void refuse_undefined_number(Runtime& runtime, const Value& value) {
  if (value.is(Kind::undefined)) runtime.fail(value.object() ? value.as<Reason>().why : "the value is undefined");
}

Value filter_int(Runtime& runtime, const Value& self, Bound& arguments) {
  refuse_undefined_number(runtime, self);
  const std::int64_t base = arguments.has(1) ? integer_of(runtime, arguments[1], "base") : 10;
  std::optional<std::int64_t> out;
  if (self.is_integral()) return Value::of(self.integer());
  if (self.is(Kind::big_integer)) return self;
  if (self.is(Kind::real) && std::isinf(self.real())) runtime.fail("infinity is no integer");
  if (self.is(Kind::real)) out = truncated(runtime, self.real());
  if (self.is(Kind::string)) {
    out = parse_integer(runtime, self.text(), base);
    if (!out)
      if (const auto real = parse_real(self.text())) out = truncated(runtime, *real);
  }
  return out ? Value::of(*out) : arguments.get(0, Value::of(std::int64_t{0}));
}

Value filter_float(Runtime& runtime, const Value& self, Bound& arguments) {
  refuse_undefined_number(runtime, self);
  if (self.is_number()) return Value::of(self.number());
  if (self.is(Kind::big_integer)) runtime.fail("an integer beyond 64 bits can be printed, not calculated with");
  const auto parsed = self.is(Kind::string) ? parse_real(self.text()) : std::nullopt;
  return parsed ? Value::of(*parsed) : arguments.get(0, Value::of(0.0));
}

Value filter_abs(Runtime& runtime, const Value& self, Bound&) {
  if (self.is(Kind::real)) return Value::of(std::fabs(self.real()));
  if (!self.is_integral()) runtime.fail(std::string("bad operand type for abs(): '") + self.type_name() + "'");
  return self.integer() < 0 ? negated(runtime, self) : Value::of(self.integer());
}

/// round() to `digits` decimals: half to even of the exact value, which is what printf does.
double rounded(double value, std::int64_t digits) {
  if (!std::isfinite(value) || digits > 400) return value;
  if (digits < -400) return std::copysign(0.0, value);
  if (digits >= 0) return std::strtod(strfmt("%.*f", static_cast<int>(digits), value).c_str(), nullptr);
  const double unit = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(value / unit) * unit;
}

std::int64_t rounded(Runtime& runtime, std::int64_t value, std::int64_t digits) {
  if (digits >= 0) return value;
  if (digits < -18) return 0;
  std::int64_t unit = 1;
  for (; digits < 0; ++digits) unit *= 10;
  const std::int64_t rest = (value % unit + unit) % unit, below = value - rest;
  const bool up = rest * 2 > unit || (rest * 2 == unit && (below / unit) % 2 != 0);
  return calculate(runtime, Operator::add, Value::of(below), Value::of(up ? unit : 0)).integer();
}

Value filter_round(Runtime& runtime, const Value& self, Bound& arguments) {
  const std::int64_t digits = arguments.has(0) ? integer_of(runtime, arguments[0], "precision") : 0;
  const std::string method = arguments.has(1) ? text_of(runtime, arguments[1]) : "common";
  if (!self.is_number()) runtime.fail(std::string("round takes a number and not a ") + self.type_name());
  if (method == "common")
    return self.is(Kind::real) ? Value::of(rounded(self.real(), digits))
                               : Value::of(rounded(runtime, self.integer(), digits));
  if (method != "ceil" && method != "floor") runtime.fail("round: the method is common, ceil or floor");
  const Value unit = calculate(runtime, Operator::power, Value::of(std::int64_t{10}), Value::of(digits));
  const double scaled = calculate(runtime, Operator::multiply, self, unit).number();
  const auto whole = truncated(runtime, method == "ceil" ? std::ceil(scaled) : std::floor(scaled));
  if (!whole) runtime.fail("round: the number is not finite");
  return calculate(runtime, Operator::divide, Value::of(*whole), unit);
}

constexpr Builtin table_of_number_filters[] = {
    {"int", "default? base?", filter_int},
    {"float", "default?", filter_float},
    {"abs", "", filter_abs},
    {"round", "precision? method?", filter_round},
};

}  // namespace

std::span<const Builtin> number_filters() { return table_of_number_filters; }

std::int64_t integer_of(Runtime& runtime, const Value& value, const char* what) {
  if (!value.is_integral()) runtime.fail(std::string(what) + " is an integer and not a " + value.type_name());
  return value.integer();
}

std::optional<std::int64_t> parse_integer(Runtime& runtime, std::string_view text, std::int64_t base) {
  text = stripped(text, Side::both);
  if (base != 0 && (base < 2 || base > 36)) runtime.fail("int: the base is 0 or 2 to 36");
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const char letter = text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : ' ';
  const std::int64_t prefixed = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
  bool after_digit = false;
  if (prefixed != 0 && (base == 0 || base == prefixed)) {
    text.remove_prefix(2);
    base = prefixed;
    after_digit = true;  // an underscore may follow the prefix
  }
  const bool plain = base == 0;
  if (plain) base = 10;
  std::int64_t out = 0;
  const std::string_view digits = text;
  for (const char c : text) {
    if (c == '_' && after_digit) {
      after_digit = false;
      continue;
    }
    const int digit = digit_value(c);
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(out, base, &out) || __builtin_sub_overflow(out, digit, &out))
      runtime.fail("an integer does not fit 64 bits");
    after_digit = true;
  }
  if (!after_digit || digits.empty()) return std::nullopt;
  if (plain && digits[0] == '0' && out != 0) return std::nullopt;
  if (!negative && out == INT64_MIN) runtime.fail("an integer does not fit 64 bits");
  return negative ? out : -out;
}

std::optional<double> parse_real(std::string_view text) {
  text = stripped(text, Side::both);
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](std::size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
    if (text[i] != '_') plain += text[i];
    else if (i == 0 || !digit(i - 1) || !digit(i + 1)) return std::nullopt;
  }
  const std::string small = lower(plain);
  const bool sign = !small.empty() && (small[0] == '-' || small[0] == '+');
  const std::string name = small.substr(sign ? 1 : 0);
  const bool word = name == "inf" || name == "infinity" || name == "nan";
  if (!word && (plain.empty() || plain.find_first_not_of("0123456789+-.eE") != std::string::npos)) return std::nullopt;
  char* end = nullptr;
  const double out = std::strtod(plain.c_str(), &end);
  if (end != plain.c_str() + plain.size()) return std::nullopt;
  return out;
}

}  // namespace tessera::io::jinja
