// SPDX-License-Identifier: Apache-2.0
#pragma once
// The syntax tree of a template.

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "io/jinja/builtins.hpp"
#include "io/jinja/operations.hpp"

namespace tessera::io::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Block = std::vector<std::unique_ptr<Statement>>;

struct Expression {
  enum class Kind : unsigned char {
    constant,
    name,
    body,       // what a filter or set block has printed
    list,       // parts: items
    tuple,      // the same
    dict,       // parts: key, value, key, value, …
    attribute,  // parts[0].text
    item,       // parts[0][parts[1]]
    slice,      // parts[0][parts[1]:parts[2]:parts[3]]; a part may be null
    call,       // parts[0](parts[1], …, named, *star, **star_star)
    filter,     // parts[0] | builtin(parts[1], …)
    test,       // parts[0] is builtin(parts[1], …)
    condition,  // parts[1] if parts[0] else parts[2]; parts[2] may be null
    negation,   // not
    conjunction,
    disjunction,
    concatenation,  // ~ of all parts
    negative,
    positive,
    binary,      // parts[0] op parts[1]
    comparison,  // parts[0] comparisons[0] parts[1] comparisons[1] …
  };
  Kind kind = Kind::constant;
  int line = 1;
  int depth = 1;
  int id = -1;  // of a name
  Operator op = Operator::add;
  std::string text;
  Value value;
  const Builtin* builtin = nullptr;
  std::vector<ExpressionPtr> parts;
  std::vector<Comparison> comparisons;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star, star_star;
};

/// What is assigned to: a name, an attribute of a namespace, or several.
struct Target {
  int id = -1;
  std::string attribute;  // of the namespace `id`; "" for a name
  std::vector<Target> several;
  bool is_tuple = false;
  int line = 1;
};

/// The variables of a body that has its own.
struct ScopeInfo {
  /// Names that the body sets before it reads them and that nothing around it has: undefined until they are set, even
  /// where the context has them.
  std::vector<std::pair<int, Value>> hidden;
  /// A macro or call block inside may read the variables later.
  bool outlives = false;
};

struct Macro {
  std::string name;
  std::vector<std::pair<std::string, int>> parameters;  // and their ids
  std::vector<ExpressionPtr> defaults;                  // of the last parameters
  Block body;
  ScopeInfo scope;
  bool reads_caller = false, reads_varargs = false, reads_kwargs = false;
};

struct Statement {
  enum class Kind : unsigned char {
    text,
    print,  // each of `expressions`
    set,
    set_block,
    condition,  // expressions[i] chooses bodies[i]; one more body: else
    loop,
    macro,
    call,    // expressions[0] is the call; `macro` the block
    filter,  // expressions[0] has a `body` inside
    with,    // targets[i] = expressions[i]
    generation,
    break_loop,
    continue_loop,
  };
  Kind kind = Kind::text;
  int line = 1;
  std::string text;
  std::vector<ExpressionPtr> expressions;  // of a loop: what it iterates, and its test or null
  std::vector<Target> targets;
  std::vector<Block> bodies;      // of a loop: body, else
  std::vector<ScopeInfo> scopes;  // of the bodies that have their own
  std::unique_ptr<Macro> macro;
  int id = -1;  // of a macro's name
};

struct Program {
  std::string name;
  std::uint64_t hash = 0;                                 // of the text
  std::vector<std::string> names;                         // by id
  int loop = -1, caller = -1, varargs = -1, kwargs = -1;  // ids of these names
  Block body;
  ScopeInfo scope;
  bool marks_generation = false;
  std::set<int> resolved;                        // names that are read from the context
  std::set<std::string, std::less<>> mentioned;  // names of attributes, and strings in expressions
};

/// Expressions and statements are nested at most so deep.
constexpr int max_syntax_depth = 120;

/// Finds out which names each scope hides, and which scopes outlive their body.
void analyze_scopes(Program& program);

}  // namespace tessera::io::jinja
