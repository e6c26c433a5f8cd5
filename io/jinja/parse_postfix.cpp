// SPDX-License-Identifier: Apache-2.0
// The grammar of what follows a value: attributes, items, calls, filters, tests.
#include "io/jinja/parser.hpp"

namespace tessera::io::jinja {
namespace {
using ExpressionKind = Expression::Kind;
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr value) {
  for (;;) {
    if (tokens_.is_symbol(".")) value = dot(std::move(value));
    else if (tokens_.is_symbol("[")) value = subscript(std::move(value));
    else if (tokens_.is_symbol("(")) value = call(std::move(value));
    else return value;
  }
}

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr value) {
  for (;;) {
    if (tokens_.skip_symbol("|")) value = filter(std::move(value));
    else if (tokens_.is_name("is")) value = test(std::move(value));
    else if (tokens_.is_symbol("(")) value = call(std::move(value));
    else return value;
  }
}

ExpressionPtr ExpressionParser::dot(ExpressionPtr value) {
  const int line = tokens_.take().line;
  const bool by_number = tokens_.is(Token::Kind::integer);
  if (!by_number && !tokens_.is(Token::Kind::name)) tokens_.unexpected("a name or number");
  ExpressionPtr out = make(by_number ? ExpressionKind::item : ExpressionKind::attribute, line);
  add(*out, std::move(value));
  const Token token = tokens_.take();
  out->text = token.text;
  program_.mentioned.insert(token.text);
  if (by_number) {
    ExpressionPtr index = make(ExpressionKind::constant, line);
    index->value = Value::of(token.integer);
    add(*out, std::move(index));
  }
  return out;
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr value) {
  const int line = tokens_.take().line;
  if (tokens_.is_symbol("]")) tokens_.unexpected("an index");
  ExpressionPtr out = make(ExpressionKind::item, line);
  add(*out, std::move(value));
  if (!tokens_.is_symbol(":")) add(*out, expression());
  if (tokens_.is_symbol(":")) {
    out->kind = ExpressionKind::slice;
    if (out->parts.size() == 1) add(*out, nullptr);
    for (int i = 0; i < 2; ++i) {
      const bool given = tokens_.skip_symbol(":") && !tokens_.is_symbol(":") && !tokens_.is_symbol("]");
      add(*out, given ? expression() : nullptr);
    }
  }
  if (tokens_.is_symbol(",")) tokens_.fail("indices with commas are not supported");
  tokens_.expect_symbol("]");
  return out;
}

void ExpressionParser::arguments(Expression& call) {
  tokens_.expect_symbol("(");
  const auto wrong = [&](bool is_wrong) {
    if (is_wrong) tokens_.fail("the arguments of the call are in the wrong order");
  };
  for (bool first = true; !tokens_.is_symbol(")"); first = false) {
    if (!first) tokens_.expect_symbol(",");
    if (tokens_.is_symbol(")")) break;
    if (tokens_.skip_symbol("*")) {
      wrong(call.star || call.star_star);
      call.star = expression();
    } else if (tokens_.skip_symbol("**")) {
      wrong(call.star_star != nullptr);
      call.star_star = expression();
    } else if (tokens_.is(Token::Kind::name) && tokens_.next().kind == Token::Kind::symbol &&
               tokens_.next().text == "=") {
      wrong(call.star_star != nullptr);
      std::string name = tokens_.take().text;
      tokens_.take();
      ExpressionPtr value = expression();
      for (const auto& other : call.named)
        if (other.first == name) tokens_.fail("the argument '" + name + "' is given twice");
      call.depth = std::max(call.depth, value->depth + 1);
      call.named.emplace_back(std::move(name), std::move(value));
    } else {
      wrong(call.star || call.star_star || !call.named.empty());
      add(call, expression());
    }
  }
  for (const ExpressionPtr* part : {&call.star, &call.star_star})
    if (*part) call.depth = std::max(call.depth, (*part)->depth + 1);
  if (call.depth > max_syntax_depth) tokens_.fail("the expression is nested too deeply", call.line);
  tokens_.expect_symbol(")");
}

ExpressionPtr ExpressionParser::call(ExpressionPtr value) {
  ExpressionPtr out = make(ExpressionKind::call, tokens_.current().line);
  add(*out, std::move(value));
  arguments(*out);
  return out;
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr value) {
  ExpressionPtr out = make(ExpressionKind::filter, tokens_.current().line);
  add(*out, std::move(value));
  out->text = tokens_.expect_name();
  while (tokens_.skip_symbol(".")) out->text += "." + tokens_.expect_name();
  out->builtin = find_filter(out->text);
  if (!out->builtin) unknown_.push_back({"filter '" + out->text + "' is not supported", out->line});
  if (tokens_.is_symbol("(")) arguments(*out);
  return out;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr value) {
  ExpressionPtr out = make(ExpressionKind::test, tokens_.take().line);
  const bool negated = tokens_.skip_name("not");
  add(*out, std::move(value));
  out->text = tokens_.expect_name();
  while (tokens_.skip_symbol(".")) out->text += "." + tokens_.expect_name();
  out->builtin = find_test(out->text);
  if (!out->builtin) unknown_.push_back({"test '" + out->text + "' is not supported", out->line});
  const Token& token = tokens_.current();
  const bool word =
      token.kind == Token::Kind::name && token.text != "else" && token.text != "or" && token.text != "and";
  if (tokens_.is_symbol("(")) {
    arguments(*out);
  } else if (word || token.kind == Token::Kind::string || token.kind == Token::Kind::integer ||
             token.kind == Token::Kind::real || tokens_.is_symbol("[") || tokens_.is_symbol("{")) {
    if (tokens_.is_name("is")) tokens_.fail("tests with 'is' cannot be chained");
    add(*out, postfix(primary()));
  }
  if (!negated) return out;
  ExpressionPtr negation = make(ExpressionKind::negation, out->line);
  add(*negation, std::move(out));
  return negation;
}

ExpressionPtr ExpressionParser::filtered(ExpressionPtr value) {
  while (tokens_.skip_symbol("|")) value = filter(std::move(value));
  return value;
}

ExpressionPtr ExpressionParser::body_value(int line) { return make(ExpressionKind::body, line); }

ExpressionPtr ExpressionParser::filters_of_body() { return filtered(filter(body_value(tokens_.current().line))); }

}  // namespace tessera::io::jinja
