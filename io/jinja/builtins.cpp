// SPDX-License-Identifier: Apache-2.0
// Arguments of built-in functions; finding them by name.
#include "io/jinja/builtins.hpp"

#include <algorithm>

#include "io/jinja/operations.hpp"

namespace tessera::io::jinja {
namespace {

using Table = std::unordered_map<std::string_view, const Builtin*>;

void add(Table& table, std::span<const Builtin> builtins) {
  for (const Builtin& builtin : builtins) table.emplace(builtin.name, &builtin);
}

struct Parameter {
  std::string_view name;
  bool optional;
};

/// The parameters of a built-in function, without "*" and "**".
std::vector<Parameter> parameters_of(const Builtin& builtin, bool& positional_rest, bool& named_rest) {
  std::vector<Parameter> out;
  for (std::string_view text = builtin.parameters; !text.empty();) {
    std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (word == "*") {
      positional_rest = true;
    } else if (word == "**") {
      named_rest = true;
    } else {
      const bool optional = word.ends_with('?');
      out.push_back({word.substr(0, word.size() - (optional ? 1 : 0)), optional});
    }
  }
  return out;
}

}  // namespace

Bound bind(Runtime& runtime, const Builtin& builtin, Arguments& arguments) {
  bool positional_rest = false, named_rest = false;
  const std::vector<Parameter> parameters = parameters_of(builtin, positional_rest, named_rest);
  const std::string name = std::string("'") + builtin.name + "'";
  Bound bound;
  bound.values_.resize(parameters.size());
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    if (i < parameters.size()) bound.values_[i] = std::move(arguments.positional[i]);
    else if (positional_rest) bound.rest.positional.push_back(std::move(arguments.positional[i]));
    else runtime.fail(name + " takes at most " + std::to_string(parameters.size()) + " arguments");
  }
  for (auto& named : arguments.named) {
    const std::string& key = named.first;
    Value& value = named.second;
    const auto found = std::find_if(parameters.begin(), parameters.end(), [&](const auto& p) { return p.name == key; });
    if (found == parameters.end()) {
      if (!named_rest) runtime.fail(name + " has no argument '" + key + "'");
      bound.rest.named.emplace_back(key, std::move(value));
      continue;
    }
    auto& place = bound.values_[static_cast<std::size_t>(found - parameters.begin())];
    if (place) runtime.fail(name + " has two values for the argument '" + key + "'");
    place = std::move(value);
  }
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (!bound.values_[i] && !parameters[i].optional)
      runtime.fail(name + " lacks the argument '" + std::string(parameters[i].name) + "'");
  return bound;
}

Value call(Runtime& runtime, const Builtin& builtin, const Value& self, Arguments& arguments) {
  Bound bound = bind(runtime, builtin, arguments);
  runtime.step();
  return builtin.apply(runtime, self, bound);
}

const Builtin* find_filter(std::string_view name) {
  static const Table table = [] {
    Table all;
    for (const auto& part : {text_filters(), sequence_filters(), lazy_filters(), number_filters()}) add(all, part);
    return all;
  }();
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

Value value_at(Runtime& runtime, Value value, const Value& path) {
  if (path.is(Value::Kind::none)) return value;
  if (!path.is(Value::Kind::string)) return item(runtime, value, path);
  std::string_view rest = path.text();
  for (;;) {
    const std::string_view part = rest.substr(0, rest.find('.'));
    const bool digits =
        !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    const auto index = digits ? parse_integer(runtime, part, 10) : std::nullopt;
    value = item(runtime, value, index ? Value::of(*index) : runtime.string(std::string(part)));
    if (part.size() == rest.size()) return value;
    rest.remove_prefix(part.size() + 1);
  }
}

}  // namespace tessera::io::jinja
