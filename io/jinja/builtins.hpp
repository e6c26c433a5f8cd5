// SPDX-License-Identifier: Apache-2.0
#pragma once
// Filters, tests, functions and methods: tables of what can be called by name, and how their arguments are bound.

#include <optional>
#include <span>

#include "io/jinja/runtime.hpp"

namespace tessera::io::jinja {

/// The arguments of a call, by the position of their parameter.
class Bound {
 public:
  /// True if the argument was given.
  [[nodiscard]] bool has(std::size_t parameter) const { return values_[parameter].has_value(); }
  /// An argument that was given, or is required.
  [[nodiscard]] const Value& operator[](std::size_t parameter) const { return *values_[parameter]; }
  [[nodiscard]] Value get(std::size_t parameter, const Value& otherwise) const {
    return has(parameter) ? *values_[parameter] : otherwise;
  }
  /// True if given, and true.
  [[nodiscard]] bool flag(std::size_t parameter) const { return has(parameter) && truthy(*values_[parameter]); }
  Arguments rest;  // what `*` and `**` take

 private:
  friend Bound bind(Runtime& runtime, const struct Builtin& builtin, Arguments& arguments);
  std::vector<std::optional<Value>> values_;
};

/// `parameters`: names in order, optional ones with '?' behind them, "*" for any number of positional arguments and
/// "**" for any named ones: "old new count?". `self` is the filtered or tested value, or the object of a method.
struct Builtin {
  const char* name;
  const char* parameters;
  Value (*apply)(Runtime& runtime, const Value& self, Bound& arguments);
};

/// Throws TemplateError: too many arguments, a missing or unknown one.
[[nodiscard]] Bound bind(Runtime& runtime, const Builtin& builtin, Arguments& arguments);
/// Binds and calls.
[[nodiscard]] Value call(Runtime& runtime, const Builtin& builtin, const Value& self, Arguments& arguments);

/// By name; null if there is none.
[[nodiscard]] const Builtin* find_filter(std::string_view name);
[[nodiscard]] const Builtin* find_test(std::string_view name);
/// A function that every template has: `range`, `namespace`, … Throws for one that Jinja has and this does not.
[[nodiscard]] std::optional<Value> global_function(Runtime& runtime, const std::string& name);

/// The tables, one a file.
[[nodiscard]] std::span<const Builtin> text_filters();
[[nodiscard]] std::span<const Builtin> sequence_filters();
[[nodiscard]] std::span<const Builtin> lazy_filters();
[[nodiscard]] std::span<const Builtin> number_filters();
[[nodiscard]] std::span<const Builtin> text_methods();

/// How an `attribute=` argument reads a value: "a.b.0" by parts.
[[nodiscard]] Value value_at(Runtime& runtime, Value value, const Value& path);

}  // namespace tessera::io::jinja
