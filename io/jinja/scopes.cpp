// SPDX-License-Identifier: Apache-2.0
// Names and scopes before rendering: which variables a body hides from its surroundings.
#include <functional>
#include <map>
#include <set>

#include "io/jinja/syntax.hpp"

namespace tessera::io::jinja {
namespace {

using StatementKind = Statement::Kind;

/// One body with variables of its own. `known`: names it reads or sets, or gets as parameters. `set`: those that are
/// set at this point whatever branches were taken. `perhaps`: those that only some branches set.
struct Frame {
  const Frame* around = nullptr;
  ScopeInfo* info = nullptr;
  std::set<int> known, set, perhaps;
  std::vector<Statement*> inner;  // statements with bodies of their own

  [[nodiscard]] bool knows(int id) const { return known.count(id) > 0 || (around && around->knows(id)); }
  [[nodiscard]] bool may_lack(int id) const {
    if (set.count(id) > 0) return false;
    return perhaps.count(id) > 0 || (known.count(id) == 0 && around && around->may_lack(id));
  }
};

class ScopeAnalysis {
 public:
  explicit ScopeAnalysis(Program& program) : program_(program) {}

  void run() {
    Frame frame;
    frame.info = &program_.scope;
    body(frame, program_.body);
  }

 private:
  /// Visits a body's statements in order, then the bodies inside.
  void body(Frame& frame, const Block& block) {
    visit(frame, block, false);
    for (Statement* statement : frame.inner) {
      if (statement->kind == StatementKind::macro || statement->kind == StatementKind::call)
        macro_body(frame, *statement->macro);
      else inner_bodies(frame, *statement);
      for (const ScopeInfo& scope : statement->scopes) frame.info->outlives = frame.info->outlives || scope.outlives;
      if (statement->macro) frame.info->outlives = true;
    }
  }

  void inner_bodies(Frame& around, Statement& statement) {
    for (std::size_t i = 0; i < statement.bodies.size(); ++i) {
      Frame frame;
      frame.around = &around;
      frame.info = &statement.scopes[i];
      if (statement.kind == StatementKind::loop && i == 0) {
        parameters(frame, statement.targets[0]);
        if (statement.expressions[1]) read(frame, *statement.expressions[1]);
        frame.known.insert(program_.loop);
      }
      if (statement.kind == StatementKind::with)
        for (const Target& target : statement.targets) parameters(frame, target);
      body(frame, statement.bodies[i]);
    }
  }

  void macro_body(Frame& around, Macro& macro) {
    Frame frame;
    frame.around = &around;
    frame.info = &macro.scope;
    for (const auto& [name, id] : macro.parameters) frame.known.insert(id);
    for (const ExpressionPtr& value : macro.defaults) read(frame, *value);
    std::set<int> names;
    collect(macro.body, names);
    macro.reads_caller = names.count(program_.caller) > 0;
    macro.reads_varargs = names.count(program_.varargs) > 0;
    macro.reads_kwargs = names.count(program_.kwargs) > 0;
    const auto special = [&](bool is_read, int id) {
      if (is_read) frame.known.insert(id);
    };
    special(macro.reads_caller, program_.caller);
    special(macro.reads_varargs, program_.varargs);
    special(macro.reads_kwargs, program_.kwargs);
    body(frame, macro.body);
  }

  static void parameters(Frame& frame, const Target& target) {
    if (!target.is_tuple) frame.known.insert(target.id);
    for (const Target& part : target.several) parameters(frame, part);
  }

  /// All names that a block reads, bodies inside included.
  static void collect(const Block& block, std::set<int>& names) {
    const auto read = [&](const std::vector<ExpressionPtr>& values) {
      for (const ExpressionPtr& value : values)
        if (value) for_each_name(*value, [&](int id) { names.insert(id); });
    };
    for (const auto& statement : block) {
      read(statement->expressions);
      for (const Block& inner : statement->bodies) collect(inner, names);
      if (!statement->macro) continue;
      read(statement->macro->defaults);
      collect(statement->macro->body, names);
    }
  }

  static void for_each_name(const Expression& expression, const std::function<void(int)>& visit) {
    if (expression.kind == Expression::Kind::name) visit(expression.id);
    for (const ExpressionPtr& part : expression.parts)
      if (part) for_each_name(*part, visit);
    for (const auto& [name, value] : expression.named) for_each_name(*value, visit);
    if (expression.star) for_each_name(*expression.star, visit);
    if (expression.star_star) for_each_name(*expression.star_star, visit);
  }

  void read(Frame& frame, const Expression& expression) {
    for_each_name(expression, [&](int id) { read_name(frame, id); });
  }

  void read_name(Frame& frame, int id) {
    if (frame.knows(id) && !frame.may_lack(id)) return;
    frame.known.insert(id);
    program_.resolved.insert(id);
  }

  void set(Frame& frame, const Target& target, bool conditional) {
    if (!target.attribute.empty()) return read_name(frame, target.id);
    if (!target.is_tuple) set_name(frame, target.id, conditional);
    for (const Target& part : target.several) set(frame, part, conditional);
  }

  void set_name(Frame& frame, int id, bool conditional) {
    const bool outside = frame.around && frame.around->knows(id);
    frame.set.insert(id);
    if (!frame.known.insert(id).second || outside || conditional) return;
    const std::string& name = program_.names[static_cast<std::size_t>(id)];
    frame.info->hidden.emplace_back(id, Value::undefined("'" + name + "' is undefined"));
  }

  void visit_branches(Frame& frame, const Statement& condition) {
    const std::set<int> before = frame.set;
    const bool has_else = condition.bodies.size() > condition.expressions.size();
    std::map<int, std::size_t> branches;  // that set a name
    for (const Block& branch : condition.bodies) {
      frame.set = before;
      visit(frame, branch, true);
      for (const int id : frame.set) ++branches[id];
    }
    frame.set = before;
    for (const auto& [id, count] : branches)
      (has_else && count == condition.bodies.size() ? frame.set : frame.perhaps).insert(id);
  }

  void visit(Frame& frame, const Block& block, bool conditional) {
    for (const auto& statement : block) {
      for (const ExpressionPtr& value : statement->expressions)
        if (value && !(statement->kind == StatementKind::loop && value == statement->expressions[1]))
          read(frame, *value);
      if (statement->kind == StatementKind::set || statement->kind == StatementKind::set_block)
        set(frame, statement->targets[0], conditional);
      if (statement->kind == StatementKind::macro) set_name(frame, statement->id, conditional);
      if (statement->kind == StatementKind::condition) {
        visit_branches(frame, *statement);
      } else if (!statement->bodies.empty() || statement->macro) {
        frame.inner.push_back(statement.get());
      }
    }
  }

  Program& program_;
};

}  // namespace

void analyze_scopes(Program& program) { ScopeAnalysis(program).run(); }

}  // namespace tessera::io::jinja
