// SPDX-License-Identifier: Apache-2.0
// Methods of strings, lists and dicts.
#include <algorithm>
#include <array>

#include "io/jinja/builtins.hpp"
#include "io/jinja/operations.hpp"
#include "io/jinja/python_text.hpp"

namespace tessera::io::jinja {
namespace {

using Kind = Value::Kind;

class BoundMethod final : public Callable {
 public:
  BoundMethod(const Builtin& builtin, Value self) : builtin_(builtin), self_(std::move(self)) { contains(self_); }
  Value call(Runtime& runtime, Arguments& arguments) const override {
    return jinja::call(runtime, builtin_, self_, arguments);
  }

 private:
  const Builtin& builtin_;
  Value self_;
};

template <View::Of of>
Value method_view(Runtime& runtime, const Value& self, Bound&) {
  return runtime.object(Kind::view, make_object<View>(of, self));
}

Value method_get(Runtime& runtime, const Value& self, Bound& arguments) {
  const Value* value = find(runtime, self.dict(), arguments[0]);
  return value ? *value : arguments.get(1, Value::none());
}

Value method_copy(Runtime&, const Value& self, Bound&) { return self; }  // nothing can change it

Value method_index(Runtime& runtime, const Value& self, Bound& arguments) {
  const auto& items = self.items();
  for (std::size_t i = 0; i < items.size(); ++i)
    if (same(runtime, items[i], arguments[0])) return Value::of(static_cast<std::int64_t>(i));
  runtime.fail(repr_of(runtime, arguments[0]) + " is not in the list");
}

Value method_count(Runtime& runtime, const Value& self, Bound& arguments) {
  std::int64_t count = 0;
  for (const Value& item : self.items()) count += same(runtime, item, arguments[0]);
  return Value::of(count);
}

constexpr Builtin dict_methods[] = {
    {"items", "", method_view<View::Of::items>},
    {"keys", "", method_view<View::Of::keys>},
    {"values", "", method_view<View::Of::values>},
    {"get", "key default?", method_get},
    {"copy", "", method_copy},
};

constexpr Builtin list_methods[] = {
    {"index", "value", method_index},
    {"count", "value", method_count},
    {"copy", "", method_copy},
};

/// What changes a list or dict: templates get an undefined value for it.
constexpr std::array<std::string_view, 5> changes_dict = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::array<std::string_view, 8> changes_list = {"append", "clear",  "extend",  "insert",
                                                          "pop",    "remove", "reverse", "sort"};
/// What Python has, and this does not.
constexpr std::array<std::string_view, 9> lacking = {"encode",  "expandtabs",   "format_map",  "translate", "maketrans",
                                                     "istitle", "isidentifier", "isprintable", "fromkeys"};

template <std::size_t n>
bool is_in(const std::array<std::string_view, n>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::span<const Builtin> methods_of(const Value& object) {
  if (object.is(Kind::string)) return text_methods();
  if (object.is(Kind::dict)) return dict_methods;
  if (object.is(Kind::list)) return list_methods;
  if (object.is(Kind::tuple)) return std::span(list_methods).first(2);
  return {};
}

}  // namespace

std::optional<Value> method(Runtime& runtime, const Value& object, const std::string& name) {
  const std::span<const Builtin> methods = methods_of(object);
  if (methods.empty()) return std::nullopt;
  for (const Builtin& builtin : methods)
    if (name == builtin.name) return runtime.object(Kind::callable, make_object<BoundMethod>(builtin, object));
  if ((object.is(Kind::dict) && is_in(changes_dict, name)) || (object.is(Kind::list) && is_in(changes_list, name)))
    return Value::undefined("access to attribute '" + name + "' of '" + object.type_name() + "' object is unsafe");
  const bool lacks = object.is(Kind::dict) ? name == "fromkeys"
                                           : object.is(Kind::string) && name != "fromkeys" && is_in(lacking, name);
  if (lacks) runtime.fail(std::string("the method '") + name + "' of " + object.type_name() + " is not supported");
  return std::nullopt;
}

}  // namespace tessera::io::jinja
