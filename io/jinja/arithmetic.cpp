// SPDX-License-Identifier: Apache-2.0
// Arithmetic, comparisons and `in`.
#include <algorithm>
#include <cmath>

#include "io/jinja/operations.hpp"

namespace tessera::io::jinja {
namespace {

using Kind = Value::Kind;

const char* symbol(Operator op) {
  constexpr const char* all[] = {"+", "-", "*", "/", "//", "%", "**"};
  return all[static_cast<int>(op)];
}

void refuse_undefined(Runtime& runtime, const Value& value) {
  if (!value.is(Kind::undefined)) return;
  runtime.fail(value.object() ? value.as<Reason>().why : "the value is undefined");
}

void refuse_big(Runtime& runtime, const Value& value) {
  if (value.is(Kind::big_integer))
    runtime.fail("an integer beyond 64 bits can be printed, not calculated with: " + value.text());
}

[[noreturn]] void overflow(Runtime& runtime, const char* op) {
  runtime.fail(std::string("the result of ") + op + " does not fit 64 bits");
}

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }

std::int64_t integer_power(Runtime& runtime, std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) overflow(runtime, "**");
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow(runtime, "**");
  }
  return result;
}

Value integers(Runtime& runtime, Operator op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool bad = false;
  switch (op) {
    case Operator::add: bad = __builtin_add_overflow(a, b, &result); break;
    case Operator::subtract: bad = __builtin_sub_overflow(a, b, &result); break;
    case Operator::multiply: bad = __builtin_mul_overflow(a, b, &result); break;
    case Operator::divide:
      if (b == 0) runtime.fail("division by zero");
      return Value::of(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case Operator::floor_divide:
    case Operator::modulo:
      if (b == 0) runtime.fail("integer division or modulo by zero");
      if (b == -1) return op == Operator::modulo ? Value::of(std::int64_t{0}) : negated(runtime, Value::of(a));
      result = floor_quotient(a, b);
      if (op == Operator::modulo) result = a - result * b;
      break;
    case Operator::power:
      if (b < 0) {
        if (a == 0) runtime.fail("0.0 cannot be raised to a negative power");
        return Value::of(std::pow(static_cast<double>(a), static_cast<double>(b)));
      }
      if (a == 0 || a == 1 || a == -1) return Value::of(b == 0 ? 1 : a == -1 && b % 2 == 0 ? 1 : a);
      result = integer_power(runtime, a, b);
      break;
  }
  if (bad) overflow(runtime, symbol(op));
  return Value::of(result);
}

double real_modulo(double a, double b) {
  double result = std::fmod(a, b);
  if (result != 0 && (b < 0) != (result < 0)) result += b;
  return result == 0 ? std::copysign(0.0, b) : result;
}

double real_floor_quotient(double a, double b) {
  const double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (b < 0) != (remainder < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

Value reals(Runtime& runtime, Operator op, double a, double b) {
  switch (op) {
    case Operator::add: return Value::of(a + b);
    case Operator::subtract: return Value::of(a - b);
    case Operator::multiply: return Value::of(a * b);
    case Operator::power:
      if (a == 0 && b < 0) runtime.fail("0.0 cannot be raised to a negative power");
      if (a < 0 && std::isfinite(b) && std::floor(b) != b) runtime.fail("the result of ** is a complex number");
      if (std::isinf(std::pow(a, b)) && std::isfinite(a) && std::isfinite(b))
        runtime.fail("the result of ** is too large");
      return Value::of(std::pow(a, b));
    default: break;
  }
  if (b == 0) runtime.fail("float division by zero");
  if (op == Operator::divide) return Value::of(a / b);
  return Value::of(op == Operator::modulo ? real_modulo(a, b) : real_floor_quotient(a, b));
}

/// A string, list or tuple, so many times.
Value repeated(Runtime& runtime, const Value& value, std::int64_t times) {
  times = std::max<std::int64_t>(times, 0);
  if (value.is(Kind::string)) {
    const std::string& text = value.text();
    if (!text.empty() && times > runtime.options.max_output / static_cast<std::int64_t>(text.size()))
      runtime.fail("a string has more than " + std::to_string(runtime.options.max_output) + " bytes");
    std::string out;
    out.reserve(text.size() * static_cast<std::size_t>(times));
    for (std::int64_t i = 0; i < (text.empty() ? 0 : times); ++i) out += text;
    return runtime.string(std::move(out));
  }
  std::vector<Value> out;
  for (std::int64_t i = 0; i < (value.items().empty() ? 0 : times); ++i) {
    runtime.step(static_cast<std::int64_t>(value.items().size()));
    runtime.charge(value.items().size() * sizeof(Value));
    out.insert(out.end(), value.items().begin(), value.items().end());
  }
  return value.is(Kind::list) ? runtime.list(std::move(out)) : runtime.tuple(std::move(out));
}

/// The lexicographic order of two strings, lists or tuples, by the first items that differ.
bool ordered(Runtime& runtime, Comparison op, const Value& a, const Value& b) {
  const auto by = [op](const auto& x, const auto& y) {
    return op == Comparison::less         ? x < y
           : op == Comparison::less_equal ? x <= y
           : op == Comparison::greater    ? x > y
                                          : x >= y;
  };
  if (a.is_number() && b.is_number())
    return a.is_integral() && b.is_integral() ? by(a.integer(), b.integer()) : by(a.number(), b.number());
  if (a.is(Kind::string) && b.is(Kind::string)) return by(a.text(), b.text());  // UTF-8 sorts as code points do
  if (a.is_sequence() && a.kind() == b.kind()) {
    const auto& x = a.items();
    const auto& y = b.items();
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!same(runtime, x[i], y[i])) return ordered(runtime, op, x[i], y[i]);
    }
    return by(x.size(), y.size());
  }
  refuse_undefined(runtime, a);
  refuse_undefined(runtime, b);
  refuse_big(runtime, a);
  refuse_big(runtime, b);
  constexpr const char* names[] = {"==", "!=", "<", "<=", ">", ">="};
  runtime.fail(std::string("'") + names[static_cast<int>(op)] + "' is not supported between '" + a.type_name() +
               "' and '" + b.type_name() + "'");
}

/// The text of a string, with HTML's characters escaped unless it is safe.
std::string html_escaped(const Value& string) {
  if (string.as<Text>().safe) return string.text();
  std::string out;
  for (const char c : string.text()) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  }
  return out;
}

/// a + b of strings. As with MarkupSafe, a safe one makes the whole safe.
Value sum_of_strings(Runtime& runtime, const Value& a, const Value& b) {
  if (a.as<Text>().safe || b.as<Text>().safe) return runtime.safe_string(html_escaped(a) + html_escaped(b));
  return runtime.string(a.text() + b.text());
}

}  // namespace

Value calculate(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  refuse_undefined(runtime, a);
  if (op == Operator::modulo && a.is(Kind::string)) return runtime.string(percent_format(runtime, a.text(), b));
  refuse_undefined(runtime, b);
  if (a.is_integral() && b.is_integral()) return integers(runtime, op, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return reals(runtime, op, a.number(), b.number());
  if (op == Operator::add && a.is(Kind::string) && b.is(Kind::string)) return sum_of_strings(runtime, a, b);
  if (op == Operator::add && a.is_sequence() && a.kind() == b.kind()) {
    std::vector<Value> out = a.items();
    out.insert(out.end(), b.items().begin(), b.items().end());
    runtime.step(static_cast<std::int64_t>(out.size() / 8));
    return a.is(Kind::list) ? runtime.list(std::move(out)) : runtime.tuple(std::move(out));
  }
  if (op == Operator::multiply) {
    const bool repeats_a = a.is(Kind::string) || a.is_sequence(), repeats_b = b.is(Kind::string) || b.is_sequence();
    if (repeats_a && b.is_integral()) return repeated(runtime, a, b.integer());
    if (repeats_b && a.is_integral()) return repeated(runtime, b, a.integer());
  }
  refuse_big(runtime, a);
  refuse_big(runtime, b);
  runtime.fail(std::string("unsupported operands for ") + symbol(op) + ": '" + a.type_name() + "' and '" +
               b.type_name() + "'");
}

Value negated(Runtime& runtime, const Value& value) {
  refuse_undefined(runtime, value);
  refuse_big(runtime, value);
  if (value.is(Kind::real)) return Value::of(-value.real());
  if (!value.is_integral()) runtime.fail(std::string("bad operand type for unary -: '") + value.type_name() + "'");
  if (value.integer() == INT64_MIN) overflow(runtime, "-");
  return Value::of(-value.integer());
}

bool compare(Runtime& runtime, Comparison op, const Value& a, const Value& b) {
  switch (op) {
    case Comparison::equal: return same(runtime, a, b);
    case Comparison::unequal: return !same(runtime, a, b);
    case Comparison::in: return contains(runtime, b, a);
    case Comparison::not_in: return !contains(runtime, b, a);
    default: return ordered(runtime, op, a, b);
  }
}

bool same(Runtime& runtime, const Value& a, const Value& b) {
  runtime.step(std::min(a.weight(), b.weight()));
  return equal(a, b);
}

const Value* find(Runtime& runtime, const Dict& dict, const Value& key) {
  runtime.step(key.weight());
  if (!hashable(key)) runtime.fail(std::string("unhashable type: '") + key.type_name() + "'");
  return dict.find(key);
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is(Kind::string)) {
    if (item.is(Kind::string)) {
      runtime.step(static_cast<std::int64_t>(container.text().size() / 256));
      return container.text().find(item.text()) != std::string::npos;
    }
    runtime.fail(std::string("'in <string>' requires string as left operand, not ") + item.type_name());
  }
  if (container.is(Kind::dict)) { return find(runtime, container.dict(), item) != nullptr; }
  const auto items = iterate(runtime, container);
  for (Value other; items->next(runtime, other);)
    if (same(runtime, other, item)) return true;
  return false;
}

}  // namespace tessera::io::jinja
