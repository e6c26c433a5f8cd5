// SPDX-License-Identifier: Apache-2.0
// The grammar of statements.
#include <algorithm>

#include "io/jinja/parser.hpp"
#include "io/jinja/template.hpp"
#include "io/tokenizer/utf8.hpp"
#include "runtime/base/hash.hpp"

namespace tessera::io::jinja {
namespace {

using StatementKind = Statement::Kind;

class StatementParser {
 public:
  StatementParser(TokenReader& tokens, Program& program)
      : tokens_(tokens), program_(program), expressions_(tokens, program) {}

  void run() {
    program_.loop = expressions_.id_of("loop");
    program_.caller = expressions_.id_of("caller");
    program_.varargs = expressions_.id_of("varargs");
    program_.kwargs = expressions_.id_of("kwargs");
    program_.body = block({}, "");
    expressions_.refuse_unknown();
  }

 private:
  using Names = std::vector<std::string_view>;

  /// Statements up to a tag whose name is among `ends`; that tag's {% is taken, its name is not.
  Block block(const Names& ends, const std::string& of) {
    if (++nesting_ > max_syntax_depth) tokens_.fail("blocks are nested too deeply");
    Block out;
    for (;;) {
      const Token& token = tokens_.current();
      if (token.kind == Token::Kind::end) {
        if (!ends.empty())
          tokens_.fail("the block '" + of + "' has no '" + std::string(ends.back()) + "'",
                       opened_.empty() ? token.line : opened_.back());
        break;
      }
      if (token.kind == Token::Kind::data) {
        auto text = make(StatementKind::text);
        text->text = tokens_.take().text;
        out.push_back(std::move(text));
      } else if (token.kind == Token::Kind::variable_begin) {
        tokens_.take();
        auto print = make(StatementKind::print);
        print->expressions.push_back(expressions_.tuple());
        tokens_.expect(Token::Kind::variable_end, "'}}'");
        out.push_back(std::move(print));
      } else {
        tokens_.take();
        const std::string name = tokens_.is(Token::Kind::name) ? tokens_.current().text : "";
        if (std::find(ends.begin(), ends.end(), name) != ends.end()) break;
        out.push_back(statement());
        tokens_.expect(Token::Kind::block_end, "'%}'");
      }
    }
    --nesting_;
    return out;
  }

  /// A body with its end tag.
  Block body_of(const std::string& keyword) {
    tokens_.expect(Token::Kind::block_end, "'%}'");
    const std::string end = "end" + keyword;
    Block out = block({end}, keyword);
    tokens_.take();
    return out;
  }

  [[nodiscard]] std::unique_ptr<Statement> make(StatementKind kind) const {
    auto out = std::make_unique<Statement>();
    out->kind = kind;
    out->line = tokens_.current().line;
    return out;
  }

  std::unique_ptr<Statement> statement() {
    const int line = tokens_.current().line;
    if (!tokens_.is(Token::Kind::name)) tokens_.unexpected("the name of a statement");
    const std::string name = tokens_.current().text;
    struct Row {
      const char* name;
      std::unique_ptr<Statement> (StatementParser::*parse)();
    };
    constexpr Row rows[] = {
        {"if", &StatementParser::condition},
        {"for", &StatementParser::loop},
        {"set", &StatementParser::set},
        {"macro", &StatementParser::macro},
        {"call", &StatementParser::call},
        {"filter", &StatementParser::filter},
        {"with", &StatementParser::with},
        {"generation", &StatementParser::generation},
        {"break", &StatementParser::loop_control},
        {"continue", &StatementParser::loop_control},
        {"print", &StatementParser::print},
    };
    for (const Row& row : rows) {
      if (name != row.name) continue;
      opened_.push_back(line);
      auto out = (this->*row.parse)();
      opened_.pop_back();
      return out;
    }
    if (name.starts_with("end") || name == "else" || name == "elif")
      tokens_.fail("unexpected {% " + name + " %}", line);
    tokens_.fail("the statement '" + name + "' is not supported", line);
  }

  std::unique_ptr<Statement> condition() {
    auto out = make(StatementKind::condition);
    const std::size_t known = expressions_.unknown();
    for (;;) {
      tokens_.take();  // if, elif
      out->expressions.push_back(expressions_.tuple(ExpressionParser::Conditions::not_allowed));
      tokens_.expect(Token::Kind::block_end, "'%}'");
      out->bodies.push_back(block({"elif", "else", "endif"}, "if"));
      if (!tokens_.is_name("elif")) break;
    }
    if (tokens_.take().text == "else") {
      tokens_.expect(Token::Kind::block_end, "'%}'");
      out->bodies.push_back(block({"endif"}, "if"));
      tokens_.take();
    }
    expressions_.forgive(known);
    return out;
  }

  Target target(bool with_namespace) {
    Target out = one_target(with_namespace);
    if (!tokens_.is_symbol(",")) return out;
    Target all;
    all.is_tuple = true;
    all.line = out.line;
    all.several.push_back(std::move(out));
    while (tokens_.skip_symbol(",")) {
      if (tokens_.is_name("in") || tokens_.is_symbol(")") || tokens_.is(Token::Kind::block_end)) break;
      all.several.push_back(one_target(with_namespace));
    }
    return all;
  }

  Target one_target(bool with_namespace) {
    Target out;
    out.line = tokens_.current().line;
    if (tokens_.skip_symbol("(")) {
      if (++nesting_ > max_syntax_depth) tokens_.fail("the target is nested too deeply");
      out = target(with_namespace);
      --nesting_;
      tokens_.expect_symbol(")");
      return out;
    }
    const std::string name = tokens_.expect_name();
    constexpr std::string_view constants[] = {"true", "false", "none", "True", "False", "None"};
    if (std::find(std::begin(constants), std::end(constants), name) != std::end(constants))
      tokens_.fail("cannot assign to '" + name + "'", out.line);
    out.id = expressions_.id_of(name);
    if (with_namespace && tokens_.skip_symbol(".")) out.attribute = tokens_.expect_name();
    return out;
  }

  std::unique_ptr<Statement> loop() {
    auto out = make(StatementKind::loop);
    tokens_.take();
    out->targets.push_back(target(false));
    if (!tokens_.skip_name("in")) tokens_.unexpected("'in'");
    out->expressions.push_back(expressions_.tuple(ExpressionParser::Conditions::not_allowed));
    out->expressions.push_back(tokens_.skip_name("if") ? expressions_.expression() : nullptr);
    if (tokens_.is_name("recursive"))
      tokens_.fail("recursive loops are not supported", out->line, "Use a macro that calls itself");
    tokens_.expect(Token::Kind::block_end, "'%}'");
    ++loops_;
    out->bodies.push_back(block({"else", "endfor"}, "for"));
    --loops_;
    if (tokens_.take().text == "else") {
      tokens_.expect(Token::Kind::block_end, "'%}'");
      out->bodies.push_back(block({"endfor"}, "for"));
      tokens_.take();
    }
    out->scopes.resize(2);
    return out;
  }

  std::unique_ptr<Statement> set() {
    auto out = make(StatementKind::set);
    tokens_.take();
    out->targets.push_back(target(true));
    if (tokens_.skip_symbol("=")) {
      out->expressions.push_back(expressions_.tuple());
      return out;
    }
    out->kind = StatementKind::set_block;
    out->expressions.push_back(expressions_.filtered(expressions_.body_value(out->line)));
    out->bodies.push_back(body_of("set"));
    out->scopes.resize(1);
    return out;
  }

  /// Parameters in parentheses with defaults.
  void signature(Macro& macro) {
    tokens_.expect_symbol("(");
    for (bool first = true; !tokens_.is_symbol(")"); first = false) {
      if (!first) tokens_.expect_symbol(",");
      const int line = tokens_.current().line;
      const std::string name = tokens_.expect_name();
      for (const auto& other : macro.parameters)
        if (other.first == name) tokens_.fail("the parameter '" + name + "' is there twice", line);
      macro.parameters.emplace_back(name, expressions_.id_of(name));
      if (tokens_.skip_symbol("=")) macro.defaults.push_back(expressions_.expression());
      else if (!macro.defaults.empty())
        tokens_.fail("the parameter '" + name + "' has no default, and one before it has", line);
    }
    tokens_.expect_symbol(")");
  }

  /// The body of a macro or call block: no loop outside reaches into it.
  void macro_body(Macro& macro, const std::string& keyword) {
    const int loops = std::exchange(loops_, 0);
    macro.body = body_of(keyword);
    loops_ = loops;
  }

  std::unique_ptr<Statement> macro() {
    auto out = make(StatementKind::macro);
    tokens_.take();
    out->macro = std::make_unique<Macro>();
    out->macro->name = tokens_.expect_name();
    out->id = expressions_.id_of(out->macro->name);
    signature(*out->macro);
    macro_body(*out->macro, "macro");
    return out;
  }

  std::unique_ptr<Statement> call() {
    auto out = make(StatementKind::call);
    tokens_.take();
    out->macro = std::make_unique<Macro>();
    out->macro->name = "caller";
    if (tokens_.is_symbol("(")) signature(*out->macro);
    out->expressions.push_back(expressions_.expression());
    if (out->expressions[0]->kind != Expression::Kind::call) tokens_.fail("{% call %} needs a call", out->line);
    macro_body(*out->macro, "call");
    return out;
  }

  std::unique_ptr<Statement> filter() {
    auto out = make(StatementKind::filter);
    tokens_.take();
    out->expressions.push_back(expressions_.filters_of_body());
    out->bodies.push_back(body_of("filter"));
    out->scopes.resize(1);
    return out;
  }

  std::unique_ptr<Statement> with() {
    auto out = make(StatementKind::with);
    tokens_.take();
    while (!tokens_.is(Token::Kind::block_end)) {
      if (!out->targets.empty()) tokens_.expect_symbol(",");
      out->targets.push_back(one_target(false));
      tokens_.expect_symbol("=");
      out->expressions.push_back(expressions_.expression());
    }
    out->bodies.push_back(body_of("with"));
    out->scopes.resize(1);
    return out;
  }

  std::unique_ptr<Statement> generation() {
    auto out = make(StatementKind::generation);
    tokens_.take();
    if (std::exchange(in_generation_, true)) tokens_.fail("{% generation %} inside of another", out->line);
    program_.marks_generation = true;
    const int loops = std::exchange(loops_, 0);
    out->bodies.push_back(body_of("generation"));
    loops_ = loops;
    in_generation_ = false;
    out->scopes.resize(1);
    return out;
  }

  std::unique_ptr<Statement> loop_control() {
    auto out = make(tokens_.is_name("break") ? StatementKind::break_loop : StatementKind::continue_loop);
    if (loops_ == 0) tokens_.fail("'" + tokens_.current().text + "' outside of a loop");
    tokens_.take();
    return out;
  }

  std::unique_ptr<Statement> print() {
    auto out = make(StatementKind::print);
    tokens_.take();
    while (!tokens_.is(Token::Kind::block_end)) {
      if (!out->expressions.empty()) tokens_.expect_symbol(",");
      out->expressions.push_back(expressions_.expression());
    }
    return out;
  }

  TokenReader& tokens_;
  Program& program_;
  ExpressionParser expressions_;
  std::vector<int> opened_;  // lines of the statements around
  int nesting_ = 0, loops_ = 0;
  bool in_generation_ = false;
};

}  // namespace

Template Template::parse(std::string_view text, const std::string& name) {
  if (text.size() > max_template_bytes)
    throw TemplateError("the template has more than " + std::to_string(max_template_bytes) + " bytes", name, 1);
  const std::size_t valid = utf8::valid_prefix(text);
  if (valid < text.size())
    throw TemplateError(
        "the template is not UTF-8", name,
        1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(valid), '\n')));
  auto program = std::make_shared<Program>();
  program->name = name;
  program->hash = hash64(text);
  TokenReader tokens(tokenize(text, name), name);
  StatementParser(tokens, *program).run();
  analyze_scopes(*program);
  return Template(std::move(program));
}

bool Template::marks_generation() const { return program_->marks_generation; }
std::uint64_t Template::hash() const { return program_->hash; }
const std::string& Template::name() const { return program_->name; }
bool Template::mentions(std::string_view key) const { return program_->mentioned.contains(key); }
bool Template::reads(std::string_view variable) const {
  return std::any_of(program_->resolved.begin(), program_->resolved.end(),
                     [&](int id) { return program_->names[static_cast<std::size_t>(id)] == variable; });
}

}  // namespace tessera::io::jinja
