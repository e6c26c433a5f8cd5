// SPDX-License-Identifier: Apache-2.0
// Filters whose result is computed while it is read: map, select, unique, …
#include <algorithm>

#include "io/jinja/builtins.hpp"
#include "io/jinja/operations.hpp"
#include "io/jinja/python_text.hpp"

namespace tessera::io::jinja {
namespace {

using Kind = Value::Kind;

/// Items of a value, read when the first of them is needed.
class Source final : public Iterator {
 public:
  explicit Source(Value value) : value_(std::move(value)) { contains(value_); }
  bool next(Runtime& runtime, Value& item) override {
    if (!items_) items_ = iterate(runtime, value_);
    return items_->next(runtime, item);
  }

 private:
  Value value_;
  std::shared_ptr<Iterator> items_;
};

/// Calls a function for the next item; it answers whether the item is given out.
template <typename F>
class Filtered final : public Iterator {
 public:
  Filtered(Value source, F function) : source_(std::move(source)), function_(std::move(function)) {
    depth = source_.depth + 1;
    weight = source_.weight;
  }
  bool next(Runtime& runtime, Value& item) override {
    const Runtime::Nested nested(runtime);
    while (source_.next(runtime, item))
      if (function_(runtime, item)) return true;
    return false;
  }

 private:
  Source source_;
  F function_;
};

template <typename F>
Value filtered(Runtime& runtime, const Value& source, F function) {
  // Jinja reads nothing from what is false, None among them.
  const Value items = truthy(source) ? source : Value();
  return runtime.object(Kind::iterator, make_object<Filtered<F>>(items, std::move(function)));
}

Value map_attribute(Runtime& runtime, const Value& self, Bound& arguments) {
  Value path, otherwise = Value::none();
  for (auto& [name, value] : arguments.rest.named) {
    if (name != "attribute" && name != "default") runtime.fail("map has no argument '" + name + "'");
    (name == "attribute" ? path : otherwise) = value;
  }
  if (path.is(Kind::undefined)) runtime.fail("map needs the name of a filter, or attribute=");
  return filtered(runtime, self, [path, otherwise](Runtime& at, Value& item) {
    item = value_at(at, item, path);
    if (item.is(Kind::undefined) && !otherwise.is(Kind::none)) item = otherwise;
    return true;
  });
}

Value filter_map(Runtime& runtime, const Value& self, Bound& arguments) {
  if (arguments.rest.positional.empty()) return map_attribute(runtime, self, arguments);
  const std::string name = text_of(runtime, arguments.rest.positional[0]);
  const Builtin* filter = find_filter(name);
  if (!filter) runtime.fail("filter '" + name + "' is not supported");
  Arguments rest = std::move(arguments.rest);
  rest.positional.erase(rest.positional.begin());
  return filtered(runtime, self, [filter, rest](Runtime& at, Value& item) {
    Arguments given = rest;
    item = call(at, *filter, item, given);
    return true;
  });
}

/// select, reject (`path` none) and selectattr, rejectattr: what is kept has the answer `wanted`.
Value selected(Runtime& runtime, const Value& self, Bound& arguments, bool by_attribute, bool wanted) {
  Arguments rest = std::move(arguments.rest);
  const auto take = [&rest] {
    Value first = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return first;
  };
  if (by_attribute && rest.positional.empty()) runtime.fail("selectattr and rejectattr need the name of an attribute");
  const Value path = by_attribute ? take() : Value::none();
  const Builtin* test = nullptr;
  if (!rest.positional.empty()) {
    const std::string name = text_of(runtime, take());
    test = find_test(name);
    if (!test) runtime.fail("test '" + name + "' is not supported");
  }
  return filtered(runtime, self, [path, test, rest, wanted](Runtime& at, Value& item) {
    const Value tested = value_at(at, item, path);
    Arguments given = rest;
    return truthy(test ? call(at, *test, tested, given) : tested) == wanted;
  });
}

Value filter_select(Runtime& runtime, const Value& self, Bound& arguments) {
  return selected(runtime, self, arguments, false, true);
}
Value filter_reject(Runtime& runtime, const Value& self, Bound& arguments) {
  return selected(runtime, self, arguments, false, false);
}
Value filter_selectattr(Runtime& runtime, const Value& self, Bound& arguments) {
  return selected(runtime, self, arguments, true, true);
}
Value filter_rejectattr(Runtime& runtime, const Value& self, Bound& arguments) {
  return selected(runtime, self, arguments, true, false);
}

Value filter_unique(Runtime& runtime, const Value& self, Bound& arguments) {
  const bool case_sensitive = arguments.flag(0);
  const Value path = arguments.get(1, Value::none());
  const auto seen = make_object<Dict>();
  return runtime.object(Kind::iterator, [&] {
    const auto is_new = [path, case_sensitive, seen](Runtime& at, Value& item) {
      Value key = value_at(at, item, path);
      if (!case_sensitive && key.is(Kind::string)) key = at.string(lower(key.text()));
      if (find(at, *seen, key)) return false;
      at.set(*seen, key, Value::none());
      return true;
    };
    return make_object<Filtered<decltype(is_new)>>(self, is_new);
  }());
}

/// Lists of items that were made at once.
Value lists_iterator(Runtime& runtime, std::vector<Value> lists) {
  return runtime.object(Kind::iterator, make_object<Source>(runtime.list(std::move(lists))));
}

Value filter_batch(Runtime& runtime, const Value& self, Bound& arguments) {
  const std::int64_t size = integer_of(runtime, arguments[0], "linecount");
  std::vector<Value> lists, part;
  const auto flush = [&] { lists.push_back(runtime.list(std::exchange(part, {}))); };
  for (Value& value : list_of(runtime, self)) {
    if (static_cast<std::int64_t>(part.size()) == size) flush();
    part.push_back(std::move(value));
  }
  if (!part.empty()) {
    const Value fill = arguments.get(1, Value::none());
    while (!fill.is(Kind::none) && static_cast<std::int64_t>(part.size()) < size) {
      runtime.charge(sizeof(Value));
      part.push_back(fill);
    }
    flush();
  }
  return lists_iterator(runtime, std::move(lists));
}

Value filter_slice(Runtime& runtime, const Value& self, Bound& arguments) {
  const std::int64_t slices = integer_of(runtime, arguments[0], "slices");
  const std::vector<Value> items = list_of(runtime, self);
  if (slices == 0) runtime.fail("slice: integer division or modulo by zero");
  const auto size = static_cast<std::int64_t>(items.size());
  const Value fill = arguments.get(1, Value::none());
  std::vector<Value> lists;
  for (std::int64_t i = 0, begin = 0; i < slices; ++i) {
    runtime.step();
    const bool longer = i < size % slices;
    const std::int64_t end = begin + size / slices + (longer ? 1 : 0);
    std::vector<Value> part(items.begin() + begin, items.begin() + end);
    if (!longer && !fill.is(Kind::none)) part.push_back(fill);
    lists.push_back(runtime.list(std::move(part)));
    begin = end;
  }
  return lists_iterator(runtime, std::move(lists));
}

Value filter_items(Runtime& runtime, const Value& self, Bound&) {
  if (self.is(Kind::undefined)) return lists_iterator(runtime, {});
  if (!self.is(Kind::dict)) runtime.fail(std::string("items takes a dict and not a ") + self.type_name());
  const Value view = runtime.object(Kind::view, make_object<View>(View::Of::items, self));
  return runtime.object(Kind::iterator, make_object<Source>(view));
}

Value filter_reverse(Runtime& runtime, const Value& self, Bound&) {
  if (self.is(Kind::string)) {
    std::u32string points = to_points(self.text());
    std::reverse(points.begin(), points.end());
    return runtime.string(from_points(points));
  }
  std::vector<Value> items = list_of(runtime, self);
  std::reverse(items.begin(), items.end());
  if (self.is(Kind::iterator)) return runtime.list(std::move(items));
  return lists_iterator(runtime, std::move(items));
}

constexpr Builtin table_of_lazy_filters[] = {
    {"map", "* **", filter_map},
    {"select", "* **", filter_select},
    {"reject", "* **", filter_reject},
    {"selectattr", "* **", filter_selectattr},
    {"rejectattr", "* **", filter_rejectattr},
    {"unique", "case_sensitive? attribute?", filter_unique},
    {"batch", "linecount fill_with?", filter_batch},
    {"slice", "slices fill_with?", filter_slice},
    {"items", "", filter_items},
    {"reverse", "", filter_reverse},
};

}  // namespace

std::span<const Builtin> lazy_filters() { return table_of_lazy_filters; }

}  // namespace tessera::io::jinja
