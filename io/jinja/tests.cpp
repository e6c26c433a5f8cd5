// SPDX-License-Identifier: Apache-2.0
// Tests: `value is name`.
#include "io/jinja/builtins.hpp"
#include "io/jinja/operations.hpp"
#include "io/jinja/python_text.hpp"

namespace tessera::io::jinja {
namespace {

using Kind = Value::Kind;

template <Kind kind>
Value test_kind(Runtime&, const Value& self, Bound&) {
  return Value::of(self.is(kind));
}

template <Comparison op>
Value test_compare(Runtime& runtime, const Value& self, Bound& arguments) {
  return Value::of(compare(runtime, op, self, arguments[0]));
}

Value test_defined(Runtime&, const Value& self, Bound&) { return Value::of(!self.is(Kind::undefined)); }
Value test_true(Runtime&, const Value& self, Bound&) { return Value::of(self.is(Kind::boolean) && self.boolean()); }
Value test_false(Runtime&, const Value& self, Bound&) { return Value::of(self.is(Kind::boolean) && !self.boolean()); }
Value test_integer(Runtime&, const Value& self, Bound&) {
  return Value::of(self.is(Kind::integer) || self.is(Kind::big_integer));
}
Value test_number(Runtime&, const Value& self, Bound&) {
  return Value::of(self.is_number() || self.is(Kind::big_integer));
}
Value test_iterable(Runtime&, const Value& self, Bound&) { return Value::of(iterable(self)); }
/// With a length and items by index; of an undefined value Jinja says so too.
Value test_sequence(Runtime&, const Value& self, Bound&) {
  return Value::of(length(self).has_value() && !self.is(Kind::view));
}
/// Jinja's undefined values, macros and loops can be called, as far as Python sees.
Value test_callable(Runtime&, const Value& self, Bound&) {
  return Value::of(self.is(Kind::callable) || self.is(Kind::undefined) || self.is(Kind::loop));
}

template <int rest>
Value test_parity(Runtime& runtime, const Value& self, Bound&) {
  return Value::of(same(runtime, calculate(runtime, Operator::modulo, self, Value::of(std::int64_t{2})),
                        Value::of(std::int64_t{rest})));
}

Value test_divisibleby(Runtime& runtime, const Value& self, Bound& arguments) {
  return Value::of(same(runtime, calculate(runtime, Operator::modulo, self, arguments[0]), Value::of(std::int64_t{0})));
}

Value test_lower(Runtime& runtime, const Value& self, Bound&) {
  return Value::of(in_text_class(TextClass::lower, text_of(runtime, self)));
}
Value test_upper(Runtime& runtime, const Value& self, Bound&) {
  return Value::of(in_text_class(TextClass::upper, text_of(runtime, self)));
}

/// Python's `is`: of None, True and False; other values are the same if they are one object.
Value test_sameas(Runtime& runtime, const Value& self, Bound& arguments) {
  const Value& other = arguments[0];
  if (self.kind() != other.kind()) return Value::of(false);
  if (self.is_number()) return Value::of(equal(self, other));
  if (self.is(Kind::string)) return Value::of(same(runtime, self, other));
  return Value::of(self.object() == other.object());
}

Value test_filter(Runtime& runtime, const Value& self, Bound&) {
  return Value::of(find_filter(text_of(runtime, self)) != nullptr);
}
Value test_test(Runtime& runtime, const Value& self, Bound&) {
  return Value::of(find_test(text_of(runtime, self)) != nullptr);
}

constexpr Builtin table_of_tests[] = {
    {"defined", "", test_defined},
    {"undefined", "", test_kind<Kind::undefined>},
    {"none", "", test_kind<Kind::none>},
    {"boolean", "", test_kind<Kind::boolean>},
    {"true", "", test_true},
    {"false", "", test_false},
    {"integer", "", test_integer},
    {"float", "", test_kind<Kind::real>},
    {"number", "", test_number},
    {"string", "", test_kind<Kind::string>},
    {"mapping", "", test_kind<Kind::dict>},
    {"iterable", "", test_iterable},
    {"sequence", "", test_sequence},
    {"callable", "", test_callable},
    {"odd", "", test_parity<1>},
    {"even", "", test_parity<0>},
    {"divisibleby", "num", test_divisibleby},
    {"lower", "", test_lower},
    {"upper", "", test_upper},
    {"sameas", "other", test_sameas},
    {"filter", "", test_filter},
    {"test", "", test_test},
    {"in", "seq", test_compare<Comparison::in>},
    {"eq", "other", test_compare<Comparison::equal>},
    {"==", "other", test_compare<Comparison::equal>},
    {"equalto", "other", test_compare<Comparison::equal>},
    {"ne", "other", test_compare<Comparison::unequal>},
    {"!=", "other", test_compare<Comparison::unequal>},
    {"lt", "other", test_compare<Comparison::less>},
    {"<", "other", test_compare<Comparison::less>},
    {"lessthan", "other", test_compare<Comparison::less>},
    {"le", "other", test_compare<Comparison::less_equal>},
    {"<=", "other", test_compare<Comparison::less_equal>},
    {"gt", "other", test_compare<Comparison::greater>},
    {">", "other", test_compare<Comparison::greater>},
    {"greaterthan", "other", test_compare<Comparison::greater>},
    {"ge", "other", test_compare<Comparison::greater_equal>},
    {">=", "other", test_compare<Comparison::greater_equal>},
};

}  // namespace

const Builtin* find_test(std::string_view name) {
  for (const Builtin& test : table_of_tests)
    if (name == test.name) return &test;
  return nullptr;
}

}  // namespace tessera::io::jinja
