// SPDX-License-Identifier: Apache-2.0
// The grammar of expressions.
#include <algorithm>

#include "io/jinja/parser.hpp"
#include "io/jinja/template.hpp"

namespace tessera::io::jinja {
namespace {

using ExpressionKind = Expression::Kind;

Value constant_text(std::string text) { return {Value::Kind::string, make_object<Text>(std::move(text))}; }

struct BinaryRow {
  const char* symbol;
  Operator op;
};
constexpr BinaryRow sums[] = {{"+", Operator::add}, {"-", Operator::subtract}};
constexpr BinaryRow products[] = {
    {"*", Operator::multiply}, {"/", Operator::divide}, {"//", Operator::floor_divide}, {"%", Operator::modulo}};
constexpr BinaryRow powers[] = {{"**", Operator::power}};

template <std::size_t n>
const BinaryRow* row_of(const BinaryRow (&rows)[n], const TokenReader& tokens) {
  for (const BinaryRow& row : rows)
    if (tokens.is_symbol(row.symbol)) return &row;
  return nullptr;
}

}  // namespace

Token TokenReader::take() {
  Token out = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return out;
}

void TokenReader::fail(const std::string& what, int line, const std::string& what_to_do) const {
  throw TemplateError(what, name_, line, what_to_do);
}

void TokenReader::unexpected(const std::string& wanted) const {
  const Token& token = current();
  const char* names[] = {"text", "{{", "}}", "{%", "%}"};
  const std::string found = token.kind == Token::Kind::end ? "the end of the template"
                            : token.kind <= Token::Kind::block_end
                                ? std::string("'") + names[static_cast<int>(token.kind)] + "'"
                            : token.kind == Token::Kind::string ? "a string"
                                                                : "'" + token.text + "'";
  fail("unexpected " + found + (wanted.empty() ? "" : ", expected " + wanted));
}

void TokenReader::expect_symbol(std::string_view text) {
  if (!skip_symbol(text)) unexpected("'" + std::string(text) + "'");
}

std::string TokenReader::expect_name() {
  if (!is(Token::Kind::name)) unexpected("a name");
  return take().text;
}

void TokenReader::expect(Token::Kind kind, const char* what) {
  if (!is(kind)) unexpected(what);
  take();
}

int ExpressionParser::id_of(const std::string& name) {
  const auto [found, is_new] = ids_.emplace(name, static_cast<int>(program_.names.size()));
  if (is_new) program_.names.push_back(name);
  return found->second;
}

ExpressionPtr ExpressionParser::make(Expression::Kind kind, int line) const {
  auto out = std::make_unique<Expression>();
  out->kind = kind;
  out->line = line;
  return out;
}

void ExpressionParser::add(Expression& to, ExpressionPtr part) const {
  if (part) to.depth = std::max(to.depth, part->depth + 1);
  if (to.depth > max_syntax_depth) tokens_.fail("the expression is nested too deeply", to.line);
  to.parts.push_back(std::move(part));
}

ExpressionPtr ExpressionParser::expression(Conditions conditions) {
  if (++nesting_ > max_syntax_depth) tokens_.fail("the expression is nested too deeply");
  const int line = tokens_.current().line;
  const std::size_t known = unknown();
  ExpressionPtr value = disjunction();
  while (conditions == Conditions::allowed && tokens_.skip_name("if")) {
    ExpressionPtr out = make(ExpressionKind::condition, line);
    add(*out, disjunction());
    add(*out, std::move(value));
    add(*out, tokens_.skip_name("else") ? expression() : nullptr);
    value = std::move(out);
    forgive(known);
  }
  --nesting_;
  return value;
}

ExpressionPtr ExpressionParser::disjunction() {
  ExpressionPtr left = conjunction();
  while (tokens_.is_name("or")) {
    ExpressionPtr out = make(ExpressionKind::disjunction, tokens_.take().line);
    add(*out, std::move(left));
    add(*out, conjunction());
    left = std::move(out);
  }
  return left;
}

ExpressionPtr ExpressionParser::conjunction() {
  ExpressionPtr left = negation();
  while (tokens_.is_name("and")) {
    ExpressionPtr out = make(ExpressionKind::conjunction, tokens_.take().line);
    add(*out, std::move(left));
    add(*out, negation());
    left = std::move(out);
  }
  return left;
}

ExpressionPtr ExpressionParser::negation() {
  if (!tokens_.is_name("not")) return comparison();
  if (++nesting_ > max_syntax_depth) tokens_.fail("the expression is nested too deeply");
  ExpressionPtr out = make(ExpressionKind::negation, tokens_.take().line);
  add(*out, negation());
  --nesting_;
  return out;
}

ExpressionPtr ExpressionParser::comparison() {
  constexpr const char* symbols[] = {"==", "!=", "<", "<=", ">", ">="};
  const int line = tokens_.current().line;
  ExpressionPtr out = make(ExpressionKind::comparison, line);
  add(*out, sum());
  for (;;) {
    const auto* found =
        std::find_if(std::begin(symbols), std::end(symbols), [this](const char* s) { return tokens_.is_symbol(s); });
    if (found != std::end(symbols)) {
      tokens_.take();
      out->comparisons.push_back(static_cast<Comparison>(found - std::begin(symbols)));
    } else if (tokens_.skip_name("in")) {
      out->comparisons.push_back(Comparison::in);
    } else if (tokens_.is_name("not") && tokens_.next().kind == Token::Kind::name && tokens_.next().text == "in") {
      tokens_.take();
      tokens_.take();
      out->comparisons.push_back(Comparison::not_in);
    } else {
      break;
    }
    add(*out, sum());
  }
  return out->comparisons.empty() ? std::move(out->parts[0]) : std::move(out);
}

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr left = concatenation();
  while (const BinaryRow* row = row_of(sums, tokens_)) {
    ExpressionPtr out = make(ExpressionKind::binary, tokens_.take().line);
    out->op = row->op;
    add(*out, std::move(left));
    add(*out, concatenation());
    left = std::move(out);
  }
  return left;
}

ExpressionPtr ExpressionParser::concatenation() {
  ExpressionPtr out = make(ExpressionKind::concatenation, tokens_.current().line);
  add(*out, product());
  while (tokens_.skip_symbol("~")) add(*out, product());
  return out->parts.size() == 1 ? std::move(out->parts[0]) : std::move(out);
}

ExpressionPtr ExpressionParser::product() {
  ExpressionPtr left = power();
  while (const BinaryRow* row = row_of(products, tokens_)) {
    ExpressionPtr out = make(ExpressionKind::binary, tokens_.take().line);
    out->op = row->op;
    add(*out, std::move(left));
    add(*out, power());
    left = std::move(out);
  }
  return left;
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr left = unary();
  while (const BinaryRow* row = row_of(powers, tokens_)) {
    ExpressionPtr out = make(ExpressionKind::binary, tokens_.take().line);
    out->op = row->op;
    add(*out, std::move(left));
    add(*out, unary());
    left = std::move(out);
  }
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  ExpressionPtr value;
  if (tokens_.is_symbol("-") || tokens_.is_symbol("+")) {
    if (++nesting_ > max_syntax_depth) tokens_.fail("the expression is nested too deeply");
    const Token sign = tokens_.take();
    value = make(sign.text == "-" ? ExpressionKind::negative : ExpressionKind::positive, sign.line);
    add(*value, unary(false));
    --nesting_;
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filters ? filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::primary() {
  switch (tokens_.current().kind) {
    case Token::Kind::name: return name();
    case Token::Kind::string: return string_constant();
    case Token::Kind::integer:
    case Token::Kind::real: {
      const Token number = tokens_.take();
      ExpressionPtr out = make(ExpressionKind::constant, number.line);
      out->value = number.kind == Token::Kind::integer ? Value::of(number.integer) : Value::of(number.real);
      return out;
    }
    default: break;
  }
  if (tokens_.skip_symbol("(")) {
    ExpressionPtr out = tuple(Conditions::allowed, true);
    tokens_.expect_symbol(")");
    return out;
  }
  if (tokens_.is_symbol("[")) return list();
  if (tokens_.is_symbol("{")) return dict();
  tokens_.unexpected();
}

ExpressionPtr ExpressionParser::name() {
  const Token token = tokens_.take();
  ExpressionPtr out = make(ExpressionKind::constant, token.line);
  if (token.text == "true" || token.text == "True" || token.text == "false" || token.text == "False") {
    out->value = Value::of(token.text == "true" || token.text == "True");
  } else if (token.text == "none" || token.text == "None") {
    out->value = Value::none();
  } else {
    out->kind = ExpressionKind::name;
    out->id = id_of(token.text);
  }
  return out;
}

ExpressionPtr ExpressionParser::string_constant() {
  ExpressionPtr out = make(ExpressionKind::constant, tokens_.current().line);
  std::string text;
  while (tokens_.is(Token::Kind::string)) text += tokens_.take().text;
  program_.mentioned.insert(text);
  out->value = constant_text(std::move(text));
  return out;
}

bool ExpressionParser::is_tuple_end() const {
  return tokens_.is(Token::Kind::variable_end) || tokens_.is(Token::Kind::block_end) || tokens_.is_symbol(")") ||
         tokens_.is_name("recursive");
}

ExpressionPtr ExpressionParser::tuple(Conditions conditions, bool parentheses) {
  ExpressionPtr out = make(ExpressionKind::tuple, tokens_.current().line);
  bool comma = false;
  while (!is_tuple_end()) {
    add(*out, expression(conditions));
    if (!tokens_.skip_symbol(",")) break;
    comma = true;
  }
  if (comma) return out;
  if (!out->parts.empty()) return std::move(out->parts[0]);
  if (!parentheses) tokens_.unexpected("an expression");
  return out;
}

ExpressionPtr ExpressionParser::list() {
  ExpressionPtr out = make(ExpressionKind::list, tokens_.take().line);
  while (!tokens_.is_symbol("]")) {
    if (!out->parts.empty()) tokens_.expect_symbol(",");
    if (tokens_.is_symbol("]")) break;
    add(*out, expression());
  }
  tokens_.expect_symbol("]");
  return out;
}

ExpressionPtr ExpressionParser::dict() {
  ExpressionPtr out = make(ExpressionKind::dict, tokens_.take().line);
  while (!tokens_.is_symbol("}")) {
    if (!out->parts.empty()) tokens_.expect_symbol(",");
    if (tokens_.is_symbol("}")) break;
    add(*out, expression());
    tokens_.expect_symbol(":");
    add(*out, expression());
  }
  tokens_.expect_symbol("}");
  return out;
}

}  // namespace tessera::io::jinja
