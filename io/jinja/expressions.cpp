// SPDX-License-Identifier: Apache-2.0
// Evaluation of expressions.
#include "io/jinja/interpreter.hpp"

namespace tessera::io::jinja {
namespace {

using ExpressionKind = Expression::Kind;

Value constant(bool value) { return Value::of(value); }

}  // namespace

Value Interpreter::evaluate(const Expression& expression, Scope& scope) {
  if (expression.kind == ExpressionKind::constant) return expression.value;
  const Runtime::Nested nested(runtime_);
  runtime_.line = expression.line;
  runtime_.step();
  const auto part = [&](std::size_t i) { return evaluate(*expression.parts[i], scope); };
  switch (expression.kind) {
    case ExpressionKind::name: return name(expression, scope);
    case ExpressionKind::body: return *body_;
    case ExpressionKind::list:
    case ExpressionKind::tuple:
    case ExpressionKind::dict: return collection(expression, scope);
    case ExpressionKind::attribute:
    case ExpressionKind::item:
    case ExpressionKind::slice: return access(expression, scope);
    case ExpressionKind::condition:
      if (truthy(part(0))) return part(1);
      if (expression.parts[2]) return part(2);
      return Value::undefined("the inline if-expression evaluated to false and no else section was defined");
    case ExpressionKind::negation: return constant(!truthy(part(0)));
    case ExpressionKind::conjunction:
    case ExpressionKind::disjunction: {
      Value left = part(0);
      return truthy(left) == (expression.kind == ExpressionKind::disjunction) ? left : part(1);
    }
    case ExpressionKind::comparison: return comparison(expression, scope);
    case ExpressionKind::concatenation: return concatenation(expression, scope);
    default: return operation(expression, scope);
  }
}

Value Interpreter::name(const Expression& expression, Scope& scope) {
  for (Scope* at = &scope; at; at = at->around)
    if (const Value* value = at->find(expression.id)) return *value;
  auto& global = globals_[static_cast<std::size_t>(expression.id)];
  const std::string& name = program_.names[static_cast<std::size_t>(expression.id)];
  if (!global) {
    auto function = global_function(runtime_, name);
    global = function ? std::move(*function) : Value::undefined("'" + name + "' is undefined");
  }
  return *global;
}

Value Interpreter::collection(const Expression& expression, Scope& scope) {
  std::vector<Value> items;
  items.reserve(expression.parts.size());
  for (const ExpressionPtr& part : expression.parts) items.push_back(evaluate(*part, scope));
  runtime_.line = expression.line;
  if (expression.kind == ExpressionKind::list) return runtime_.list(std::move(items));
  if (expression.kind == ExpressionKind::tuple) return runtime_.tuple(std::move(items));
  auto dict = make_object<Dict>();
  for (std::size_t i = 0; i < items.size(); i += 2) runtime_.set(*dict, std::move(items[i]), std::move(items[i + 1]));
  return runtime_.dict(std::move(dict));
}

Value Interpreter::access(const Expression& expression, Scope& scope) {
  const Value object = evaluate(*expression.parts[0], scope);
  if (expression.kind == ExpressionKind::attribute) {
    runtime_.line = expression.line;
    return attribute(runtime_, object, expression.text);
  }
  if (expression.kind == ExpressionKind::item) {
    const Value key = evaluate(*expression.parts[1], scope);
    runtime_.line = expression.line;
    return item(runtime_, object, key);
  }
  const auto bound = [&](std::size_t i) {
    return expression.parts[i] ? evaluate(*expression.parts[i], scope) : Value::none();
  };
  Slice bounds;
  bounds.first = bound(1);
  bounds.last = bound(2);
  bounds.step = bound(3);
  runtime_.line = expression.line;
  return slice(runtime_, object, bounds);
}

Value Interpreter::comparison(const Expression& expression, Scope& scope) {
  Value left = evaluate(*expression.parts[0], scope);
  for (std::size_t i = 0; i < expression.comparisons.size(); ++i) {
    Value right = evaluate(*expression.parts[i + 1], scope);
    runtime_.line = expression.line;
    if (!compare(runtime_, expression.comparisons[i], left, right)) return Value::of(false);
    left = std::move(right);
  }
  return Value::of(true);
}

Value Interpreter::concatenation(const Expression& expression, Scope& scope) {
  std::vector<Value> values;
  for (const ExpressionPtr& part : expression.parts) values.push_back(evaluate(*part, scope));
  runtime_.line = expression.line;
  std::string text;
  for (const Value& value : values) append_text(runtime_, text, value);
  return runtime_.string(std::move(text));
}

Value Interpreter::operation(const Expression& expression, Scope& scope) {
  const Value first = evaluate(*expression.parts[0], scope);
  if (expression.kind == ExpressionKind::binary) {
    const Value second = evaluate(*expression.parts[1], scope);
    runtime_.line = expression.line;
    return calculate(runtime_, expression.op, first, second);
  }
  if (expression.kind == ExpressionKind::negative || expression.kind == ExpressionKind::positive) {
    runtime_.line = expression.line;
    Value minus = negated(runtime_, first);
    return expression.kind == ExpressionKind::negative ? minus
           : first.is(Value::Kind::boolean)            ? Value::of(first.integer())
                                                       : first;
  }
  Arguments arguments = arguments_of(expression, scope);
  runtime_.line = expression.line;
  return invocation(expression, first, arguments);
}

Value Interpreter::invocation(const Expression& expression, const Value& target, Arguments& arguments) {
  if (!expression.builtin && (expression.kind == ExpressionKind::filter || expression.kind == ExpressionKind::test))
    runtime_.fail((expression.kind == ExpressionKind::filter ? "filter '" : "test '") + expression.text +
                  "' is not supported");
  if (expression.builtin) return call(runtime_, *expression.builtin, target, arguments);
  if (target.is(Value::Kind::callable)) return target.as<Callable>().call(runtime_, arguments);
  if (target.is(Value::Kind::undefined))
    runtime_.fail((target.object() ? target.as<Reason>().why : "the value is undefined") + ", so it cannot be called");
  runtime_.fail(std::string("a ") + target.type_name() + " cannot be called");
}

Arguments Interpreter::arguments_of(const Expression& expression, Scope& scope) {
  Arguments out;
  for (std::size_t i = 1; i < expression.parts.size(); ++i)
    out.positional.push_back(evaluate(*expression.parts[i], scope));
  for (const auto& [name, value] : expression.named) out.named.emplace_back(name, evaluate(*value, scope));
  if (expression.star) {
    std::vector<Value> more = list_of(runtime_, evaluate(*expression.star, scope));
    out.positional.insert(out.positional.end(), more.begin(), more.end());
  }
  if (!expression.star_star) return out;
  const Value more = evaluate(*expression.star_star, scope);
  if (!more.is(Value::Kind::dict))
    runtime_.fail(std::string("what follows ** is a ") + more.type_name() + " and not a dict");
  for (const auto& [key, value] : more.dict().entries) {
    if (!key.is(Value::Kind::string)) runtime_.fail("a key of what follows ** is not a string");
    for (const auto& other : out.named)
      if (other.first == key.text()) runtime_.fail("the argument '" + key.text() + "' is given twice");
    out.named.emplace_back(key.text(), value);
  }
  return out;
}

}  // namespace tessera::io::jinja
