// SPDX-License-Identifier: Apache-2.0
// Attributes, items, slices, lengths and iteration.
#include <algorithm>

#include "io/jinja/operations.hpp"
#include "io/jinja/python_text.hpp"

namespace tessera::io::jinja {
namespace {

using Kind = Value::Kind;

Value missing(const Value& object, const std::string& name, bool quoted) {
  const std::string type = object.is(Kind::none) ? "None" : std::string(object.type_name()) + " object";
  return Value::undefined(quoted ? "'" + type + "' has no attribute '" + name + "'" : type + " has no element " + name);
}

void refuse_undefined_object(Runtime& runtime, const Value& object, const std::string& part) {
  if (!object.is(Kind::undefined)) return;
  runtime.fail((object.object() ? object.as<Reason>().why : "the value is undefined") + ", so it has no " + part);
}

std::optional<Value> own_attribute(Runtime& runtime, const Value& object, const std::string& name) {
  if (object.is(Kind::name_space)) {
    const Value* value = object.as<Namespace>().attributes.find(name);
    return value ? std::optional(*value) : std::nullopt;
  }
  if (object.is(Kind::loop)) {
    Value value = object.as<Computed>().attribute(runtime, name);
    return value.is(Kind::undefined) && !value.object() ? std::nullopt : std::optional(std::move(value));
  }
  if (object.is(Kind::callable) && name == "name" && !object.as<Callable>().name.empty())
    return runtime.string(object.as<Callable>().name);
  return method(runtime, object, name);
}

/// An index counted from the end if negative; nothing outside.
std::optional<std::size_t> position(std::int64_t index, std::int64_t size) {
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  return static_cast<std::size_t>(index);
}

std::optional<Value> element(Runtime& runtime, const Value& object, std::int64_t index) {
  const auto size = length(object);
  const auto at = size ? position(index, *size) : std::nullopt;
  if (!at) return std::nullopt;
  if (object.is_sequence()) return object.items()[*at];
  if (object.is(Kind::range)) {
    const auto& range = object.as<Range>();
    return Value::of(range.start + range.step * static_cast<std::int64_t>(*at));
  }
  const std::string& text = object.text();
  if (object.length() == text.size()) return runtime.string(text.substr(*at, 1));
  runtime.step(static_cast<std::int64_t>(text.size() / 256));
  const std::size_t begin = byte_of_point(text, *at);
  return runtime.string(text.substr(begin, byte_of_point(std::string_view(text).substr(begin), 1)));
}

struct Bounds {
  std::int64_t first, step, count;
};

/// What a slice of `size` items takes.
Bounds bounds_of(Runtime& runtime, const Slice& slice, std::int64_t size) {
  const auto given = [&](const Value& value, std::int64_t otherwise) {
    if (value.is(Kind::none)) return otherwise;
    if (!value.is_integral()) runtime.fail("slice indices must be integers or None");
    return value.integer();
  };
  const std::int64_t step = given(slice.step, 1);
  if (step == 0) runtime.fail("slice step cannot be zero");
  const std::int64_t least = step < 0 ? -1 : 0, most = step < 0 ? size - 1 : size;
  const auto bound = [&](const Value& value, std::int64_t otherwise) {
    if (value.is(Kind::none)) return otherwise;
    const std::int64_t index = given(value, 0);
    return std::clamp(index < 0 ? index + size : index, least, most);
  };
  Range range;
  range.start = bound(slice.first, step < 0 ? most : least);
  range.stop = bound(slice.last, step < 0 ? least : most);
  range.step = std::clamp(step, -size - 1, size + 1);
  return {range.start, range.step, range.size()};
}

class SequenceIterator final : public Iterator {
 public:
  explicit SequenceIterator(Value sequence) : sequence_(std::move(sequence)) { contains(sequence_); }
  bool next(Runtime& runtime, Value& item) override {
    const auto& items = sequence_.items();
    if (at_ >= items.size()) return false;
    runtime.step();
    item = items[at_++];
    return true;
  }

 private:
  Value sequence_;
  std::size_t at_ = 0;
};

class RangeIterator final : public Iterator {
 public:
  explicit RangeIterator(const Range& range) : start_(range.start), step_(range.step), left_(range.size()) {}
  bool next(Runtime& runtime, Value& item) override {
    if (left_-- <= 0) return false;
    runtime.step();
    item = Value::of(start_);
    if (left_ > 0) start_ += step_;
    return true;
  }

 private:
  std::int64_t start_, step_, left_;
};

class TextIterator final : public Iterator {
 public:
  explicit TextIterator(Value text) : text_(std::move(text)) {}
  bool next(Runtime& runtime, Value& item) override {
    const std::string& text = text_.text();
    if (at_ >= text.size()) return false;
    runtime.step();
    const std::size_t length = byte_of_point(std::string_view(text).substr(at_), 1);
    item = runtime.string(text.substr(at_, length));
    at_ += length;
    return true;
  }

 private:
  Value text_;
  std::size_t at_ = 0;
};

class DictIterator final : public Iterator {
 public:
  DictIterator(Value dict, View::Of of) : dict_(std::move(dict)), of_(of) { contains(dict_); }
  bool next(Runtime& runtime, Value& item) override {
    const auto& entries = dict_.dict().entries;
    if (at_ >= entries.size()) return false;
    runtime.step();
    const auto& [key, value] = entries[at_++];
    item = of_ == View::Of::keys ? key : of_ == View::Of::values ? value : runtime.tuple({key, value});
    return true;
  }

 private:
  Value dict_;
  View::Of of_;
  std::size_t at_ = 0;
};

class NoItems final : public Iterator {
 public:
  bool next(Runtime&, Value&) override { return false; }
};

}  // namespace

Value attribute(Runtime& runtime, const Value& object, const std::string& name) {
  refuse_undefined_object(runtime, object, "attribute '" + name + "'");
  if (auto found = own_attribute(runtime, object, name)) return *std::move(found);
  if (object.is(Kind::dict))
    if (const Value* value = object.dict().find(name)) return *value;
  return missing(object, name, true);
}

Value item(Runtime& runtime, const Value& object, const Value& key) {
  refuse_undefined_object(runtime, object, "items");
  if (object.is(Kind::dict) && hashable(key)) {
    if (const Value* value = find(runtime, object.dict(), key)) return *value;
  } else if (key.is_integral() && (object.is_sequence() || object.is(Kind::range) || object.is(Kind::string))) {
    if (auto found = element(runtime, object, key.integer())) return *std::move(found);
  }
  if (!key.is(Kind::string)) return missing(object, repr_of(runtime, key), false);
  if (auto found = own_attribute(runtime, object, key.text())) return *std::move(found);
  return missing(object, key.text(), true);
}

Value slice(Runtime& runtime, const Value& object, const Slice& slice) {
  refuse_undefined_object(runtime, object, "slices");
  if (!object.is(Kind::string) && !object.is_sequence() && !object.is(Kind::range))
    runtime.fail(std::string("'") + object.type_name() + "' object cannot be sliced");
  const Bounds bounds = bounds_of(runtime, slice, *length(object));
  runtime.step(bounds.count / 16);
  const auto index = [&](std::int64_t i) { return static_cast<std::size_t>(bounds.first + bounds.step * i); };
  if (object.is_sequence()) {
    std::vector<Value> out;
    for (std::int64_t i = 0; i < bounds.count; ++i) out.push_back(object.items()[index(i)]);
    return object.is(Kind::list) ? runtime.list(std::move(out)) : runtime.tuple(std::move(out));
  }
  if (object.is(Kind::range)) {
    const auto& range = object.as<Range>();
    auto out = make_object<Range>();
    out->start = range.start + range.step * bounds.first;
    out->step = range.step * bounds.step;
    out->stop = out->start + out->step * bounds.count;
    return runtime.object(Kind::range, std::move(out));
  }
  const std::string& text = object.text();
  if (bounds.step == 1) {
    const std::size_t begin = object.length() == text.size() ? index(0) : byte_of_point(text, index(0));
    const auto count = static_cast<std::size_t>(bounds.count);
    const std::string_view rest = std::string_view(text).substr(begin);
    return runtime.string(
        std::string(rest.substr(0, object.length() == text.size() ? count : byte_of_point(rest, count))));
  }
  const std::u32string points = to_points(text);
  std::u32string out;
  for (std::int64_t i = 0; i < bounds.count; ++i) out += points[index(i)];
  return runtime.string(from_points(out));
}

std::optional<std::int64_t> length(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined: return 0;
    case Kind::string: return static_cast<std::int64_t>(value.length());
    case Kind::list:
    case Kind::tuple: return static_cast<std::int64_t>(value.items().size());
    case Kind::dict: return static_cast<std::int64_t>(value.dict().entries.size());
    case Kind::view: return length(value.as<View>().dict);
    case Kind::range: return value.as<Range>().size();
    default: return std::nullopt;
  }
}

bool iterable(const Value& value) { return length(value) || value.is(Kind::iterator) || value.is(Kind::loop); }

std::shared_ptr<Iterator> iterate(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::undefined: return make_object<NoItems>();
    case Kind::string: return make_object<TextIterator>(value);
    case Kind::list:
    case Kind::tuple: return make_object<SequenceIterator>(value);
    case Kind::dict: return make_object<DictIterator>(value, View::Of::keys);
    case Kind::view: return make_object<DictIterator>(value.as<View>().dict, value.as<View>().of);
    case Kind::range: return make_object<RangeIterator>(value.as<Range>());
    case Kind::iterator:
      return std::const_pointer_cast<Iterator>(std::static_pointer_cast<const Iterator>(value.shared()));
    default: runtime.fail(std::string("'") + value.type_name() + "' object is not iterable");
  }
}

std::vector<Value> list_of(Runtime& runtime, const Value& value) {
  std::vector<Value> out;
  const auto items = iterate(runtime, value);
  for (Value item; items->next(runtime, item);) {
    runtime.charge(sizeof(Value));
    out.push_back(item);
  }
  return out;
}

}  // namespace tessera::io::jinja
