// SPDX-License-Identifier: Apache-2.0
// Construction, truth, equality and hashes of values.
#include "io/jinja/value.hpp"

#include <algorithm>
#include <cmath>

#include "io/jinja/python_text.hpp"

namespace tessera::io::jinja {
namespace {

bool equal_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
  if (a.is(Value::Kind::real) && b.is(Value::Kind::real)) return a.real() == b.real();
  const double real = a.is(Value::Kind::real) ? a.real() : b.real();
  const std::int64_t integer = a.is(Value::Kind::real) ? b.integer() : a.integer();
  // Exact: a double in the range of int64 that is whole converts to the integer it is.
  return real >= -0x1p63 && real < 0x1p63 && std::trunc(real) == real && static_cast<std::int64_t>(real) == integer;
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
    const Value* other = b.find(entry.first);
    return other && equal(entry.second, *other);
  });
}

bool equal_ranges(const Range& a, const Range& b) {
  return a.size() == b.size() && (a.size() == 0 || (a.start == b.start && (a.size() == 1 || a.step == b.step)));
}

}  // namespace

Text::Text(std::string text) : bytes(std::move(text)), length(count_points(bytes)) {
  weight = 1 + static_cast<std::int64_t>(bytes.size() / 256);
}
Sequence::Sequence(std::vector<Value> values) : items(std::move(values)) {
  for (const Value& item : items) contains(item);
}

void Object::contains(const Value& value) {
  constexpr std::int64_t most = INT64_MAX / 4;
  depth = std::max(depth, value.depth() + 1);
  weight = std::min(most, weight + value.weight());
}

Value Value::big_integer(std::string digits) { return {Kind::big_integer, make_object<Text>(std::move(digits))}; }
Value Value::undefined(std::string why) { return {Kind::undefined, make_object<Reason>(std::move(why))}; }
const std::string& Value::text() const { return as<Text>().bytes; }
std::size_t Value::length() const { return as<Text>().length; }
const std::vector<Value>& Value::items() const { return as<Sequence>().items; }
const Dict& Value::dict() const { return as<Dict>(); }

const char* Value::type_name() const {
  switch (kind_) {
    case Kind::undefined: return "Undefined";
    case Kind::none: return "NoneType";
    case Kind::boolean: return "bool";
    case Kind::integer:
    case Kind::big_integer: return "int";
    case Kind::real: return "float";
    case Kind::string: return "str";
    case Kind::list: return "list";
    case Kind::tuple: return "tuple";
    case Kind::dict: return "dict";
    case Kind::view: return "dict view";
    case Kind::range: return "range";
    case Kind::iterator: return "generator";
    case Kind::callable: return "function";
    case Kind::name_space: return "Namespace";
    case Kind::loop: return "LoopContext";
  }
  return "";
}

std::ptrdiff_t Dict::index_of(const Value& key) const {
  if (index_.empty()) {
    const auto found = std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return equal(e.first, key); });
    return found == entries.end() ? -1 : found - entries.begin();
  }
  const auto [first, last] = index_.equal_range(hash_of(key));
  for (auto i = first; i != last; ++i)
    if (equal(entries[i->second].first, key)) return static_cast<std::ptrdiff_t>(i->second);
  return -1;
}

const Value* Dict::find(const Value& key) const {
  if (!hashable(key)) return nullptr;
  const std::ptrdiff_t i = index_of(key);
  return i < 0 ? nullptr : &entries[static_cast<std::size_t>(i)].second;
}

const Value* Dict::find(std::string_view key) const {
  if (!index_.empty()) return find(Value(Value::Kind::string, make_object<Text>(std::string(key))));
  for (const auto& [name, value] : entries)
    if (name.is(Value::Kind::string) && name.text() == key) return &value;
  return nullptr;
}

void Dict::set(Value key, Value value) {
  constexpr std::size_t few = 16;
  contains(key);
  contains(value);
  if (const std::ptrdiff_t i = index_of(key); i >= 0) {
    entries[static_cast<std::size_t>(i)].second = std::move(value);
    return;
  }
  entries.emplace_back(std::move(key), std::move(value));
  if (entries.size() == few) {
    for (std::size_t i = 0; i < few; ++i) index_.emplace(hash_of(entries[i].first), i);
  } else if (entries.size() > few) {
    index_.emplace(hash_of(entries.back().first), entries.size() - 1);
  }
}

std::int64_t Range::size() const {
  if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::undefined:
    case Value::Kind::none: return false;
    case Value::Kind::boolean:
    case Value::Kind::integer: return value.integer() != 0;
    case Value::Kind::real: return value.real() != 0;
    case Value::Kind::string: return !value.text().empty();
    case Value::Kind::list:
    case Value::Kind::tuple: return !value.items().empty();
    case Value::Kind::dict: return !value.dict().entries.empty();
    case Value::Kind::view: return truthy(value.as<View>().dict);
    case Value::Kind::range: return value.as<Range>().size() > 0;
    default: return true;
  }
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return equal_numbers(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Value::Kind::undefined:
    case Value::Kind::none: return true;
    case Value::Kind::string:
    case Value::Kind::big_integer: return a.text() == b.text();
    case Value::Kind::list:
    case Value::Kind::tuple:
      return a.items().size() == b.items().size() &&
             std::equal(a.items().begin(), a.items().end(), b.items().begin(), equal);
    case Value::Kind::dict: return equal_dicts(a.dict(), b.dict());
    case Value::Kind::range: return equal_ranges(a.as<Range>(), b.as<Range>());
    default: return a.object() == b.object();
  }
}

bool hashable(const Value& value) {
  if (value.is(Value::Kind::tuple)) return std::all_of(value.items().begin(), value.items().end(), hashable);
  return !value.is(Value::Kind::list) && !value.is(Value::Kind::dict) && !value.is(Value::Kind::view);
}

std::size_t hash_of(const Value& value) {
  if (value.is_number()) return std::hash<double>{}(value.number());  // -0.0 and 0.0 hash alike
  if (value.is(Value::Kind::string)) return std::hash<std::string>{}(value.text());
  if (value.is(Value::Kind::tuple)) {
    std::size_t hash = 17;
    for (const Value& item : value.items()) hash = hash * 31 + hash_of(item);
    return hash;
  }
  return static_cast<std::size_t>(value.kind());
}

}  // namespace tessera::io::jinja
