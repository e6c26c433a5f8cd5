// SPDX-License-Identifier: Apache-2.0
#pragma once
// What Python's operators and built-in functions do with values. All throw TemplateError where Python raises.

#include <optional>

#include "io/jinja/runtime.hpp"

namespace tessera::io::jinja {

enum class Operator : unsigned char { add, subtract, multiply, divide, floor_divide, modulo, power };
enum class Comparison : unsigned char { equal, unequal, less, less_equal, greater, greater_equal, in, not_in };

[[nodiscard]] Value calculate(Runtime& runtime, Operator op, const Value& a, const Value& b);
[[nodiscard]] Value negated(Runtime& runtime, const Value& value);
[[nodiscard]] bool compare(Runtime& runtime, Comparison op, const Value& a, const Value& b);
/// Python's a == b.
[[nodiscard]] bool same(Runtime& runtime, const Value& a, const Value& b);
/// The value of a key; null if the dict has none.
[[nodiscard]] const Value* find(Runtime& runtime, const Dict& dict, const Value& key);
/// Python's `item in container`.
[[nodiscard]] bool contains(Runtime& runtime, const Value& container, const Value& item);
/// Python's `text % arguments`.
[[nodiscard]] std::string percent_format(Runtime& runtime, const std::string& format, const Value& arguments);
/// Python's `text.format(…)`.
[[nodiscard]] std::string brace_format(Runtime& runtime, const std::string& format, const Arguments& arguments);

/// `object.name` and `object[key]` as Jinja finds them: undefined where there is nothing.
[[nodiscard]] Value attribute(Runtime& runtime, const Value& object, const std::string& name);
[[nodiscard]] Value item(Runtime& runtime, const Value& object, const Value& key);
/// The method `name` bound to `object`; nothing if it has none. Methods that change the object are undefined.
[[nodiscard]] std::optional<Value> method(Runtime& runtime, const Value& object, const std::string& name);
/// `object[first:last:step]`; bounds are integers or none.
struct Slice {
  Value first = Value::none(), last = Value::none(), step = Value::none();
};
[[nodiscard]] Value slice(Runtime& runtime, const Value& object, const Slice& bounds);

/// Python's len(); nothing where Python raises.
[[nodiscard]] std::optional<std::int64_t> length(const Value& value);
/// Python's iter().
[[nodiscard]] std::shared_ptr<Iterator> iterate(Runtime& runtime, const Value& value);
[[nodiscard]] bool iterable(const Value& value);
/// Python's list().
[[nodiscard]] std::vector<Value> list_of(Runtime& runtime, const Value& value);

/// Python's str() and repr().
[[nodiscard]] std::string text_of(Runtime& runtime, const Value& value);
[[nodiscard]] std::string repr_of(Runtime& runtime, const Value& value);
/// Appends str(value) to `out`.
void append_text(Runtime& runtime, std::string& out, const Value& value);

/// json.dumps as transformers calls it for `tojson`.
struct JsonStyle {
  bool ascii = false, sort_keys = false;
  std::optional<std::string> indent;  // one level
  std::string item_separator = ", ", key_separator = ": ";
};
[[nodiscard]] std::string json_text(Runtime& runtime, const Value& value, const JsonStyle& style);

/// The integer that `value` is, for `what` of a message.
[[nodiscard]] std::int64_t integer_of(Runtime& runtime, const Value& value, const char* what);
/// int() and float() of a text; nothing where Python raises ValueError. Throws beyond 64 bits.
[[nodiscard]] std::optional<std::int64_t> parse_integer(Runtime& runtime, std::string_view text, std::int64_t base);
[[nodiscard]] std::optional<double> parse_real(std::string_view text);

}  // namespace tessera::io::jinja
