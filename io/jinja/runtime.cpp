// SPDX-License-Identifier: Apache-2.0
// Limits, errors and new values of a rendering.
#include "io/jinja/runtime.hpp"

#include "io/data/row_json.hpp"
#include "io/jinja/operations.hpp"
#include "io/tokenizer/utf8.hpp"

namespace tessera::io::jinja {

using Json = nlohmann::ordered_json;

TemplateError::TemplateError(const std::string& what, const std::string& name, int line, const std::string& what_to_do)
    : Error(ExitCode::data, what, name + ":" + std::to_string(line), what_to_do), line_(line) {}

void Runtime::fail(const std::string& what, const std::string& what_to_do) const {
  throw TemplateError(what, name_, line, what_to_do);
}

void Runtime::fail_raised(const std::string& what) const {
  TemplateError error(what, name_, line);
  error.raised_ = true;
  throw error;
}

void Runtime::fail_at_limit(const std::string& what, const std::string& what_to_do) const {
  TemplateError error(what, name_, line, what_to_do);
  error.past_limit_ = true;
  throw error;
}

void Runtime::too_many_steps() const {
  fail_at_limit("the template does more than " + std::to_string(options.max_steps) + " steps",
                "It may loop without end");
}

void Runtime::too_deep() const {
  fail("calls and expressions are nested too deeply", "A macro may call itself without end");
}

void Runtime::charge(std::size_t bytes) {
  if ((bytes_ += static_cast<std::int64_t>(bytes)) > options.max_bytes)
    fail_at_limit("the template makes more than " + std::to_string(options.max_bytes) + " bytes of values", {});
}

Value Runtime::object(Value::Kind kind, std::shared_ptr<Object> object) {
  charge(64);
  if (object->depth > max_value_depth) fail("values are nested more than " + std::to_string(max_value_depth) + " deep");
  return {kind, std::move(object)};
}

Value Runtime::string(std::string text) {
  charge_text(text);
  return object(Value::Kind::string, make_object<Text>(std::move(text)));
}

Value Runtime::safe_string(std::string text) {
  charge_text(text);
  auto made = make_object<Text>(std::move(text));
  made->safe = true;
  return object(Value::Kind::string, std::move(made));
}

void Runtime::charge_text(const std::string& text) {
  if (static_cast<std::int64_t>(text.size()) > options.max_output)
    fail("a string has more than " + std::to_string(options.max_output) + " bytes");
  charge(text.size());
  step(static_cast<std::int64_t>(text.size() / 256));
}

Value Runtime::list(std::vector<Value> items) {
  charge(items.size() * sizeof(Value));
  return object(Value::Kind::list, make_object<Sequence>(std::move(items)));
}

Value Runtime::tuple(std::vector<Value> items) {
  charge(items.size() * sizeof(Value));
  return object(Value::Kind::tuple, make_object<Sequence>(std::move(items)));
}

Value Runtime::dict(std::shared_ptr<Dict> dict) {
  charge(dict->entries.size() * 3 * sizeof(Value));
  return object(Value::Kind::dict, std::move(dict));
}

Value Runtime::name_space(Dict attributes) {
  charge(sizeof(Namespace));
  namespaces_.emplace_back().attributes = std::move(attributes);
  // Not owned by the value: a namespace may hold itself.
  return {Value::Kind::name_space, std::shared_ptr<const Object>(std::shared_ptr<const Object>(), &namespaces_.back())};
}

void Runtime::set(Dict& dict, Value key, Value value) {
  step(key.weight());
  if (!hashable(key)) fail(std::string("unhashable type: '") + key.type_name() + "'");
  dict.set(std::move(key), std::move(value));
}

Value from_json(Runtime& runtime, const Json& json, int depth) {
  if (depth > max_value_depth)
    runtime.fail("the input is nested more than " + std::to_string(max_value_depth) + " deep");
  switch (json.type()) {
    case Json::value_t::boolean: return Value::of(json.get<bool>());
    case Json::value_t::number_integer: return Value::of(json.get<std::int64_t>());
    case Json::value_t::number_unsigned:
      if (json.get<std::uint64_t>() > INT64_MAX) return Value::big_integer(json.dump());
      return Value::of(json.get<std::int64_t>());
    case Json::value_t::number_float: return Value::of(json.get<double>());
    case Json::value_t::binary: return Value::big_integer(integer_digits(json).value());
    case Json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      return runtime.string(utf8::valid_prefix(text) == text.size() ? text : utf8::repaired(text));
    }
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json(runtime, item, depth + 1));
      return runtime.list(std::move(items));
    }
    case Json::value_t::object: {
      auto dict = make_object<Dict>();
      for (const auto& [key, value] : json.items())
        dict->set(runtime.string(key), from_json(runtime, value, depth + 1));
      return runtime.dict(std::move(dict));
    }
    default: return Value::none();
  }
}

std::string python_repr(const Json& json) {
  const std::string name = "a value";
  const RenderOptions limits;
  Runtime runtime(name, limits);
  return repr_of(runtime, from_json(runtime, json));
}

}  // namespace tessera::io::jinja
