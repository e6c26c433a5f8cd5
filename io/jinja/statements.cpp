// SPDX-License-Identifier: Apache-2.0
// Execution of statements.
#include "io/jinja/interpreter.hpp"
#include "io/jinja/loop_state.hpp"
#include "io/jinja/python_text.hpp"

namespace tessera::io::jinja {
namespace {

using StatementKind = Statement::Kind;

/// A macro, or the body of a call block, with the variables around its definition.
class MacroValue final : public Callable {
 public:
  MacroValue(Interpreter& interpreter, const Macro& macro, Scope& scope)
      : interpreter_(interpreter), macro_(macro), scope_(scope) {
    name = macro.name;
  }
  Value call(Runtime&, Arguments& arguments) const override {
    return interpreter_.call_macro(macro_, scope_, arguments);
  }

 private:
  Interpreter& interpreter_;
  const Macro& macro_;
  Scope& scope_;  // lasting: it contains a macro
};

/// Items of a loop for which its condition holds; the condition is evaluated when the item is needed.
class ConditionalItems final : public Iterator {
 public:
  ConditionalItems(std::shared_ptr<Iterator> items, std::function<bool(const Value&)> wanted)
      : items_(std::move(items)), wanted_(std::move(wanted)) {}
  bool next(Runtime& runtime, Value& item) override {
    while (items_->next(runtime, item))
      if (wanted_(item)) return true;
    return false;
  }

 private:
  std::shared_ptr<Iterator> items_;
  std::function<bool(const Value&)> wanted_;
};

/// Ends a loop's state whichever way the loop is left.
struct LoopEnd {
  LoopState& state;
  ~LoopEnd() { state.finish(); }
};

/// Sends text to `to` while it lives.
struct Redirected {
  Redirected(std::string*& slot, std::string* to) : out(slot), before(slot) { out = to; }
  ~Redirected() { out = before; }
  Redirected(const Redirected&) = delete;
  std::string*& out;
  std::string* before;
};

}  // namespace

Interpreter::Interpreter(const Program& program, const nlohmann::ordered_json& context, const RenderOptions& options)
    : program_(program), runtime_(program.name, options), globals_(program.names.size()) {
  if (!context.is_object()) runtime_.fail("the context of a template is an object");
  for (std::size_t i = 0; i < program.names.size(); ++i)
    if (const auto found = context.find(program.names[i]); found != context.end())
      globals_[i] = from_json(runtime_, *found);
}

Rendered Interpreter::run() {
  Scope local;
  Scope& scope = enter(program_.scope, nullptr, local);
  execute(program_.body, scope);
  return {std::move(text_), std::move(generation_)};
}

Scope& Interpreter::enter(const ScopeInfo& info, Scope* around, Scope& local) {
  Scope& scope = info.outlives ? lasting_.emplace_back() : local;
  if (info.outlives) runtime_.charge(sizeof(Scope));
  scope.around = around;
  scope.variables = info.hidden;
  return scope;
}

void Interpreter::check_output() {
  if (static_cast<std::int64_t>(out_->size()) > runtime_.options.max_output)
    runtime_.fail("the template prints more than " + std::to_string(runtime_.options.max_output) + " bytes");
}

Interpreter::Flow Interpreter::execute(const Block& block, Scope& scope) {
  for (const auto& statement : block) {
    const Flow flow = execute(*statement, scope);
    if (flow != Flow::onward) return flow;
  }
  return Flow::onward;
}

Interpreter::Flow Interpreter::execute(const Statement& statement, Scope& scope) {
  if (statement.kind == StatementKind::text) {
    runtime_.step();
    *out_ += statement.text;
    check_output();
    return Flow::onward;
  }
  const Runtime::Nested nested(runtime_);
  runtime_.line = statement.line;
  runtime_.step();
  switch (statement.kind) {
    case StatementKind::print: print(statement, scope); break;
    case StatementKind::set: assign(statement.targets[0], evaluate(*statement.expressions[0], scope), scope); break;
    case StatementKind::set_block:
    case StatementKind::filter: return captured_block(statement, scope);
    case StatementKind::condition: return condition(statement, scope);
    case StatementKind::loop: return loop(statement, scope);
    case StatementKind::macro:
      scope.set(statement.id,
                runtime_.object(Value::Kind::callable, make_object<MacroValue>(*this, *statement.macro, scope)));
      break;
    case StatementKind::call: call_block(statement, scope); break;
    case StatementKind::with: return with(statement, scope);
    case StatementKind::generation: generation(statement, scope); break;
    case StatementKind::break_loop: return Flow::break_loop;
    case StatementKind::continue_loop: return Flow::continue_loop;
    case StatementKind::text: break;
  }
  return Flow::onward;
}

void Interpreter::print(const Statement& statement, Scope& scope) {
  for (const ExpressionPtr& expression : statement.expressions) {
    const Value value = evaluate(*expression, scope);
    runtime_.line = expression->line;
    append_text(runtime_, *out_, value);
    check_output();
  }
}

Interpreter::Flow Interpreter::condition(const Statement& statement, Scope& scope) {
  for (std::size_t i = 0; i < statement.expressions.size(); ++i)
    if (truthy(evaluate(*statement.expressions[i], scope))) return execute(statement.bodies[i], scope);
  if (statement.bodies.size() > statement.expressions.size()) return execute(statement.bodies.back(), scope);
  return Flow::onward;
}

Interpreter::Flow Interpreter::loop(const Statement& statement, Scope& scope) {
  const Value source = evaluate(*statement.expressions[0], scope);
  runtime_.line = statement.line;
  std::shared_ptr<Iterator> items = iterate(runtime_, source);
  std::optional<std::int64_t> size = length(source);
  if (const Expression* test = statement.expressions[1].get()) {
    size = std::nullopt;
    items = make_object<ConditionalItems>(std::move(items), [this, &statement, &scope, test](const Value& item) {
      Scope local;
      Scope& inside = enter(statement.scopes[0], &scope, local);
      assign(statement.targets[0], item, inside);
      return truthy(evaluate(*test, inside));
    });
  }
  const auto state = make_object<LoopState>(std::move(items), size);
  const LoopEnd end{*state};
  const Value loop = runtime_.object(Value::Kind::loop, state);
  bool completed = false;  // a round, to its end: as in Jinja, `else` is for loops without one
  for (Value item; state->next(runtime_, item);) {
    const Flow flow = loop_body(statement, scope, std::move(item), loop);
    completed = completed || flow == Flow::onward;
    if (flow == Flow::break_loop) break;
  }
  if (completed || statement.bodies.size() < 2) return Flow::onward;
  Scope local;
  return execute(statement.bodies[1], enter(statement.scopes[1], &scope, local));
}

Interpreter::Flow Interpreter::loop_body(const Statement& statement, Scope& around, Value item, const Value& loop) {
  Scope local;
  Scope& scope = enter(statement.scopes[0], &around, local);
  runtime_.line = statement.line;
  assign(statement.targets[0], std::move(item), scope);
  scope.set(program_.loop, loop);
  return execute(statement.bodies[0], scope);
}

void Interpreter::assign(const Target& target, Value value, Scope& scope) {
  if (target.is_tuple) {
    const std::vector<Value> values = list_of(runtime_, value);
    runtime_.line = target.line;
    if (values.size() != target.several.size())
      runtime_.fail("cannot unpack " + std::to_string(values.size()) + " values into " +
                    std::to_string(target.several.size()) + " names");
    for (std::size_t i = 0; i < values.size(); ++i) assign(target.several[i], values[i], scope);
    return;
  }
  if (target.attribute.empty()) return scope.set(target.id, std::move(value));
  Expression read;
  read.kind = Expression::Kind::name;
  read.line = target.line;
  read.id = target.id;
  const Value object = evaluate(read, scope);
  if (!object.is(Value::Kind::name_space)) runtime_.fail("cannot assign an attribute of what is not a namespace");
  if (target.attribute.starts_with('_'))
    runtime_.fail("the attribute '" + target.attribute + "' of a namespace begins with an underscore");
  runtime_.set(object.as<Namespace>().attributes, runtime_.string(target.attribute), std::move(value));
}

Interpreter::Flow Interpreter::capture(const Statement& statement, Scope& around, Value& body) {
  std::string text;
  {
    const Redirected redirected(out_, &text);
    Scope local;
    const Flow flow = execute(statement.bodies[0], enter(statement.scopes[0], &around, local));
    if (flow != Flow::onward) return flow;  // what was printed is lost, as in Jinja
  }
  body = runtime_.string(std::move(text));
  return Flow::onward;
}

Interpreter::Flow Interpreter::captured_block(const Statement& statement, Scope& scope) {
  Value body;
  const Flow flow = capture(statement, scope, body);
  if (flow != Flow::onward) return flow;
  body_ = &body;
  Value filtered = evaluate(*statement.expressions[0], scope);
  if (statement.kind == StatementKind::set_block) {
    assign(statement.targets[0], std::move(filtered), scope);
  } else {
    append_text(runtime_, *out_, filtered);
    check_output();
  }
  return Flow::onward;
}

Interpreter::Flow Interpreter::with(const Statement& statement, Scope& around) {
  std::vector<Value> values;
  for (const ExpressionPtr& expression : statement.expressions) values.push_back(evaluate(*expression, around));
  Scope local;
  Scope& scope = enter(statement.scopes[0], &around, local);
  for (std::size_t i = 0; i < values.size(); ++i) assign(statement.targets[i], std::move(values[i]), scope);
  return execute(statement.bodies[0], scope);
}

void Interpreter::generation(const Statement& statement, Scope& scope) {
  if (out_ != &text_)
    runtime_.fail("{% generation %} inside a macro, or another block whose text is captured, is not supported",
                  "Its place in the output is not known there");
  const std::size_t begin = text_.size();
  Scope local;
  execute(statement.bodies[0], enter(statement.scopes[0], &scope, local));
  const std::size_t counted = generation_.empty() ? 0 : generation_.back().end_byte;
  const std::size_t points = generation_.empty() ? 0 : generation_.back().end;
  Span span;
  span.begin_byte = begin;
  span.end_byte = text_.size();
  span.begin = points + count_points(std::string_view(text_).substr(counted, begin - counted));
  span.end = span.begin + count_points(std::string_view(text_).substr(begin));
  generation_.push_back(span);
}

void Interpreter::call_block(const Statement& statement, Scope& scope) {
  const Expression& call = *statement.expressions[0];
  const Value target = evaluate(*call.parts[0], scope);
  Arguments arguments = arguments_of(call, scope);
  arguments.named.emplace_back(
      "caller", runtime_.object(Value::Kind::callable, make_object<MacroValue>(*this, *statement.macro, scope)));
  runtime_.line = statement.line;
  append_text(runtime_, *out_, invocation(call, target, arguments));
  check_output();
}

void Interpreter::bind_macro(const Macro& macro, Scope& scope, Arguments& arguments) {
  const auto take_named = [&](const std::string& name) -> std::optional<Value> {
    for (auto i = arguments.named.begin(); i != arguments.named.end(); ++i) {
      if (i->first != name) continue;
      Value value = std::move(i->second);
      arguments.named.erase(i);
      return value;
    }
    return std::nullopt;
  };
  const std::size_t count = macro.parameters.size(), given = std::min(arguments.positional.size(), count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto& [name, id] = macro.parameters[i];
    std::optional<Value> value = i < given ? std::optional(std::move(arguments.positional[i])) : take_named(name);
    const std::size_t without = count - macro.defaults.size();
    if (!value && i >= without) value = evaluate(*macro.defaults[i - without], scope);
    scope.set(id, value ? *std::move(value) : Value::undefined("parameter '" + name + "' was not provided"));
  }
  arguments.positional.erase(arguments.positional.begin(),
                             arguments.positional.begin() + static_cast<std::ptrdiff_t>(given));
  if (macro.reads_caller && !scope.find(program_.caller)) {
    auto caller = take_named("caller");
    scope.set(program_.caller, caller ? *std::move(caller) : Value::undefined("no caller defined"));
  }
  if (macro.reads_kwargs) {
    auto rest = make_object<Dict>();
    for (auto& [name, value] : arguments.named) runtime_.set(*rest, runtime_.string(name), std::move(value));
    scope.set(program_.kwargs, runtime_.dict(std::move(rest)));
  } else if (!arguments.named.empty()) {
    runtime_.fail("macro '" + macro.name + "' takes no argument '" + arguments.named[0].first + "'");
  }
  if (macro.reads_varargs) scope.set(program_.varargs, runtime_.tuple(std::move(arguments.positional)));
  else if (!arguments.positional.empty())
    runtime_.fail("macro '" + macro.name + "' takes at most " + std::to_string(count) + " arguments");
}

Value Interpreter::call_macro(const Macro& macro, Scope& around, Arguments& arguments) {
  const Runtime::Nested nested(runtime_);
  std::string text;
  {
    const Redirected redirected(out_, &text);
    Scope local;
    Scope& scope = enter(macro.scope, &around, local);
    bind_macro(macro, scope, arguments);
    execute(macro.body, scope);
  }
  return runtime_.string(std::move(text));
}

Rendered Template::render(const nlohmann::ordered_json& context, const RenderOptions& options) const {
  return Interpreter(*program_, context, options).run();
}

}  // namespace tessera::io::jinja
