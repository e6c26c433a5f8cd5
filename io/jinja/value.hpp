// SPDX-License-Identifier: Apache-2.0
#pragma once
// Values of a template: Python's, as far as templates see them.

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tessera::io::jinja {

class Runtime;
class Value;

/// What a value points to. `depth`: how deep values are nested in it; bounded, since destructors recurse. `weight`: how
/// many values a walk over it meets, which may be far more than there are, since values are shared.
struct Object {
  int depth = 0;
  std::int64_t weight = 1;
  virtual ~Object() = default;

 protected:
  void contains(const Value& value);
};

struct Text;
struct Sequence;
struct Dict;
class Value {
 public:
  enum class Kind : unsigned char {
    undefined,
    none,
    boolean,
    integer,
    big_integer,  // beyond 64 bits: its digits, which can be printed and compared, not calculated with
    real,
    string,
    list,
    tuple,
    dict,
    view,  // what keys(), values() and items() of a dict answer
    range,
    iterator,  // can be read once: what map, select, … answer
    callable,
    name_space,
    loop,
  };

  Value() = default;  // undefined, without a reason
  static Value none() { return Value(Kind::none); }
  static Value of(bool value) { return Value(Kind::boolean, value ? 1 : 0); }
  static Value of(std::int64_t value) { return Value(Kind::integer, value); }
  static Value of(double value) {
    Value out(Kind::real);
    out.real_ = value;
    return out;
  }
  Value(Kind kind, std::shared_ptr<const Object> object) : kind_(kind), object_(std::move(object)) {}
  /// An integer beyond 64 bits.
  static Value big_integer(std::string digits);
  /// Undefined, with what to say if it is used.
  static Value undefined(std::string why);

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] bool is(Kind kind) const { return kind_ == kind; }
  [[nodiscard]] bool boolean() const { return integer_ != 0; }
  [[nodiscard]] std::int64_t integer() const { return integer_; }  // of a boolean too
  [[nodiscard]] double real() const { return real_; }
  [[nodiscard]] const std::string& text() const;          // of a string; the digits of a big integer
  [[nodiscard]] std::size_t length() const;               // code points of a string
  [[nodiscard]] const std::vector<Value>& items() const;  // of a list or tuple
  [[nodiscard]] const Dict& dict() const;
  [[nodiscard]] const Object* object() const { return object_.get(); }
  [[nodiscard]] const std::shared_ptr<const Object>& shared() const { return object_; }
  template <typename T>
  [[nodiscard]] const T& as() const {
    return static_cast<const T&>(*object_);
  }
  [[nodiscard]] int depth() const { return object_ ? object_->depth : 0; }
  [[nodiscard]] std::int64_t weight() const { return object_ ? object_->weight : 1; }

  /// A boolean or integer.
  [[nodiscard]] bool is_integral() const { return kind_ == Kind::boolean || kind_ == Kind::integer; }
  [[nodiscard]] bool is_number() const { return is_integral() || kind_ == Kind::real; }
  /// A number as a double.
  [[nodiscard]] double number() const { return kind_ == Kind::real ? real_ : static_cast<double>(integer_); }
  [[nodiscard]] bool is_sequence() const { return kind_ == Kind::list || kind_ == Kind::tuple; }
  /// Python's name of the type: "str", "dict", …
  [[nodiscard]] const char* type_name() const;

 private:
  explicit Value(Kind kind, std::int64_t integer = 0) : kind_(kind), integer_(integer) {}
  Kind kind_ = Kind::undefined;
  union {
    std::int64_t integer_ = 0;
    double real_;
  };
  std::shared_ptr<const Object> object_;
};

struct Text : Object {
  explicit Text(std::string text);
  std::string bytes;   // UTF-8
  std::size_t length;  // code points; equal to the bytes if all are ASCII
  bool safe = false;   // what `safe` answers: + escapes the other text
};

struct Reason : Object {
  explicit Reason(std::string text) : why(std::move(text)) {}
  std::string why;
};

/// A list or tuple.
struct Sequence : Object {
  explicit Sequence(std::vector<Value> values);
  std::vector<Value> items;
};

/// A dict in order of insertion. Keys are what Python can hash.
struct Dict : Object {
  std::vector<std::pair<Value, Value>> entries;

  [[nodiscard]] const Value* find(const Value& key) const;
  [[nodiscard]] const Value* find(std::string_view key) const;
  /// Adds, or replaces the value of an equal key.
  void set(Value key, Value value);

 private:
  [[nodiscard]] std::ptrdiff_t index_of(const Value& key) const;
  std::unordered_multimap<std::size_t, std::size_t> index_;  // hash to entry; made once there are many
};

struct View : Object {
  enum class Of : unsigned char { keys, values, items };
  View(Of what, Value of_dict) : of(what), dict(std::move(of_dict)) { contains(dict); }
  Of of;
  Value dict;
};

struct Range : Object {
  std::int64_t start = 0, stop = 0, step = 1;
  [[nodiscard]] std::int64_t size() const;
};

/// Something that can be read once, item by item.
struct Iterator : Object {
  /// False at the end.
  virtual bool next(Runtime& runtime, Value& item) = 0;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Callable : Object {
  std::string name;
  virtual Value call(Runtime& runtime, Arguments& arguments) const = 0;
};

/// Something with attributes that are computed: `loop`.
struct Computed : Object {
  /// Undefined if there is none of this name.
  virtual Value attribute(Runtime& runtime, const std::string& name) const = 0;
  [[nodiscard]] virtual std::int64_t size(Runtime& runtime) const = 0;
};

/// `namespace(…)`: owned by the rendering, since it may hold itself.
struct Namespace : Object {
  mutable Dict attributes;
};

template <typename T, typename... A>
std::shared_ptr<T> make_object(A&&... arguments) {
  return std::make_shared<T>(std::forward<A>(arguments)...);
}

/// Values are nested at most so deep.
constexpr int max_value_depth = 200;

/// Python's `bool()`.
[[nodiscard]] bool truthy(const Value& value);
/// Python's ==; never an error.
[[nodiscard]] bool equal(const Value& a, const Value& b);
/// True if Python can hash it; then equal values have equal hashes.
[[nodiscard]] bool hashable(const Value& value);
[[nodiscard]] std::size_t hash_of(const Value& value);

}  // namespace tessera::io::jinja
