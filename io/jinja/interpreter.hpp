// SPDX-License-Identifier: Apache-2.0
#pragma once
// The interpreter: evaluates expressions and executes statements of one rendering.

#include <deque>
#include <optional>

#include "io/jinja/runtime.hpp"
#include "io/jinja/syntax.hpp"

namespace tessera::io::jinja {

/// Variables of a body while it runs.
struct Scope {
  Scope* around = nullptr;
  std::vector<std::pair<int, Value>> variables;

  [[nodiscard]] Value* find(int id) {
    for (auto& [name, value] : variables)
      if (name == id) return &value;
    return nullptr;
  }
  void set(int id, Value value) {
    if (Value* here = find(id)) *here = std::move(value);
    else variables.emplace_back(id, std::move(value));
  }
};

class Interpreter {
 public:
  Interpreter(const Program& program, const nlohmann::ordered_json& context, const RenderOptions& options);

  [[nodiscard]] Rendered run();

  [[nodiscard]] Value evaluate(const Expression& expression, Scope& scope);
  /// A call of a macro, or of a call block, that was defined in `scope`.
  [[nodiscard]] Value call_macro(const Macro& macro, Scope& scope, Arguments& arguments);
  [[nodiscard]] Runtime& runtime() { return runtime_; }

 private:
  enum class Flow : unsigned char { onward, break_loop, continue_loop };

  // expressions.cpp
  [[nodiscard]] Value name(const Expression& expression, Scope& scope);
  [[nodiscard]] Value operation(const Expression& expression, Scope& scope);
  [[nodiscard]] Value collection(const Expression& expression, Scope& scope);
  [[nodiscard]] Value access(const Expression& expression, Scope& scope);
  [[nodiscard]] Value comparison(const Expression& expression, Scope& scope);
  [[nodiscard]] Value concatenation(const Expression& expression, Scope& scope);
  [[nodiscard]] Value invocation(const Expression& expression, const Value& target, Arguments& arguments);
  [[nodiscard]] Arguments arguments_of(const Expression& expression, Scope& scope);

  // statements.cpp
  Flow execute(const Block& block, Scope& scope);
  Flow execute(const Statement& statement, Scope& scope);
  Flow condition(const Statement& statement, Scope& scope);
  Flow loop(const Statement& statement, Scope& scope);
  Flow loop_body(const Statement& statement, Scope& scope, Value item, const Value& loop);
  void assign(const Target& target, Value value, Scope& scope);
  void print(const Statement& statement, Scope& scope);
  Flow captured_block(const Statement& statement, Scope& scope);
  Flow with(const Statement& statement, Scope& scope);
  void call_block(const Statement& statement, Scope& scope);
  void generation(const Statement& statement, Scope& scope);
  /// What a statement's body prints, as a string; it has its own variables. Not set if a loop around it goes on.
  [[nodiscard]] Flow capture(const Statement& statement, Scope& around, Value& body);
  void bind_macro(const Macro& macro, Scope& scope, Arguments& arguments);
  void check_output();

  /// Variables for a body: `local`, or memory that lasts as long as the rendering.
  Scope& enter(const ScopeInfo& info, Scope* around, Scope& local);

  const Program& program_;
  Runtime runtime_;
  std::vector<std::optional<Value>> globals_;  // the context, and functions, by name
  std::deque<Scope> lasting_;
  std::string text_;           // the rendering
  std::string* out_ = &text_;  // where text goes: the rendering, or a body that is captured
  const Value* body_ = nullptr;
  std::vector<Span> generation_;
};

}  // namespace tessera::io::jinja
