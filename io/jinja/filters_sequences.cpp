// SPDX-License-Identifier: Apache-2.0
// Filters of lists and dicts that answer at once.
#include <algorithm>

#include "io/jinja/builtins.hpp"
#include "io/jinja/operations.hpp"
#include "io/jinja/python_text.hpp"

namespace tessera::io::jinja {
namespace {

using Kind = Value::Kind;

/// A key of sort, min and max: strings in small letters, unless case counts.
Value sort_key(Runtime& runtime, Value value, bool case_sensitive) {
  if (case_sensitive || !value.is(Kind::string)) return value;
  return runtime.string(lower(value.text()));
}

struct Keyed {
  Value key, value;
};

void sort_by_key(Runtime& runtime, std::vector<Keyed>& items, bool reverse) {
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    runtime.step();
    return reverse ? compare(runtime, Comparison::less, b.key, a.key)
                   : compare(runtime, Comparison::less, a.key, b.key);
  });
}

Value values_of(Runtime& runtime, std::vector<Keyed>& items) {
  std::vector<Value> out;
  for (Keyed& item : items) out.push_back(std::move(item.value));
  return runtime.list(std::move(out));
}

Value filter_length(Runtime& runtime, const Value& self, Bound&) {
  if (self.is(Kind::loop)) return Value::of(self.as<Computed>().size(runtime));
  const auto size = length(self);
  if (!size)
    runtime.fail(std::string("a ") + self.type_name() + " has no length",
                 self.is(Kind::iterator) ? "Add |list first" : "");
  return Value::of(*size);
}

Value filter_join(Runtime& runtime, const Value& self, Bound& arguments) {
  const std::string separator = arguments.has(0) ? text_of(runtime, arguments[0]) : "";
  std::string out;
  bool first = true;
  const auto items = iterate(runtime, self);
  for (Value item; items->next(runtime, item); first = false) {
    if (!first) out += separator;
    append_text(runtime, out, arguments.has(1) ? value_at(runtime, item, arguments[1]) : item);
    if (static_cast<std::int64_t>(out.size()) > runtime.options.max_output) break;  // string() refuses it
  }
  return runtime.string(std::move(out));
}

Value filter_first(Runtime& runtime, const Value& self, Bound&) {
  Value out;
  if (iterate(runtime, self)->next(runtime, out)) return out;
  return Value::undefined("No first item, sequence was empty.");
}

std::vector<Value> reversible(Runtime& runtime, const Value& value) {
  if (!length(value))
    runtime.fail(std::string("a ") + value.type_name() + " cannot be read from its end", "Add |list first");
  return list_of(runtime, value);
}

Value filter_last(Runtime& runtime, const Value& self, Bound&) {
  const std::vector<Value> items = reversible(runtime, self);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value filter_list(Runtime& runtime, const Value& self, Bound&) { return runtime.list(list_of(runtime, self)); }

Value filter_dictsort(Runtime& runtime, const Value& self, Bound& arguments) {
  const std::string by = arguments.has(1) ? text_of(runtime, arguments[1]) : "key";
  if (by != "key" && by != "value") runtime.fail("dictsort: by is 'key' or 'value'");
  if (!self.is(Kind::dict)) runtime.fail(std::string("dictsort takes a dict and not a ") + self.type_name());
  std::vector<Keyed> items;
  for (const auto& [key, value] : self.dict().entries)
    items.push_back({sort_key(runtime, by == "key" ? key : value, arguments.flag(0)), runtime.tuple({key, value})});
  sort_by_key(runtime, items, arguments.flag(2));
  return values_of(runtime, items);
}

/// The paths of an `attribute=` argument that may name several, with commas.
std::vector<Value> paths_of(Runtime& runtime, const Bound& arguments, std::size_t parameter) {
  const Value path = arguments.get(parameter, Value::none());
  if (!path.is(Kind::string)) return {path};
  std::vector<Value> out;
  for (const std::string_view part : split_at(path.text(), ",", -1, Side::left))
    out.push_back(runtime.string(std::string(part)));
  return out;
}

Value filter_sort(Runtime& runtime, const Value& self, Bound& arguments) {
  const std::vector<Value> paths = paths_of(runtime, arguments, 2);
  std::vector<Keyed> items;
  for (Value& value : list_of(runtime, self)) {
    std::vector<Value> keys;
    for (const Value& path : paths)
      keys.push_back(sort_key(runtime, value_at(runtime, value, path), arguments.flag(1)));
    items.push_back({runtime.list(std::move(keys)), std::move(value)});
  }
  sort_by_key(runtime, items, arguments.flag(0));
  return values_of(runtime, items);
}

Value extreme(Runtime& runtime, const Value& self, const Bound& arguments, Comparison better) {
  const Value path = arguments.get(1, Value::none());
  const std::vector<Value> items = list_of(runtime, self);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const auto key_of = [&](const Value& value) {
    return sort_key(runtime, value_at(runtime, value, path), arguments.flag(0));
  };
  const Value* best = &items[0];
  Value best_key = key_of(items[0]);
  for (std::size_t i = 1; i < items.size(); ++i) {
    Value key = key_of(items[i]);
    if (!compare(runtime, better, key, best_key)) continue;
    best = &items[i];
    best_key = std::move(key);
  }
  return *best;
}

Value filter_min(Runtime& runtime, const Value& self, Bound& arguments) {
  return extreme(runtime, self, arguments, Comparison::less);
}
Value filter_max(Runtime& runtime, const Value& self, Bound& arguments) {
  return extreme(runtime, self, arguments, Comparison::greater);
}

Value filter_sum(Runtime& runtime, const Value& self, Bound& arguments) {
  Value out = arguments.get(1, Value::of(std::int64_t{0}));
  if (out.is(Kind::string)) runtime.fail("sum: the start is a string", "Use join");
  const Value path = arguments.get(0, Value::none());
  const auto items = iterate(runtime, self);
  for (Value item; items->next(runtime, item);)
    out = calculate(runtime, Operator::add, out, value_at(runtime, item, path));
  return out;
}

Value filter_default(Runtime&, const Value& self, Bound& arguments) {
  const bool replaces = self.is(Kind::undefined) || (arguments.flag(1) && !truthy(self));
  if (!replaces) return self;
  return arguments.get(0, Value(Kind::string, make_object<Text>(std::string())));
}

constexpr Builtin table_of_sequence_filters[] = {
    {"length", "", filter_length},
    {"count", "", filter_length},
    {"join", "d? attribute?", filter_join},
    {"first", "", filter_first},
    {"last", "", filter_last},
    {"list", "", filter_list},
    {"dictsort", "case_sensitive? by? reverse?", filter_dictsort},
    {"sort", "reverse? case_sensitive? attribute?", filter_sort},
    {"min", "case_sensitive? attribute?", filter_min},
    {"max", "case_sensitive? attribute?", filter_max},
    {"sum", "attribute? start?", filter_sum},
    {"default", "default_value? boolean?", filter_default},
    {"d", "default_value? boolean?", filter_default},
};

}  // namespace

std::span<const Builtin> sequence_filters() { return table_of_sequence_filters; }

}  // namespace tessera::io::jinja
