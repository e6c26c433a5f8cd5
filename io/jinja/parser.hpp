// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parser: tokens to a syntax tree.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/jinja/lexer.hpp"
#include "io/jinja/syntax.hpp"

namespace tessera::io::jinja {

/// Position in the tokens of a template, and errors there.
class TokenReader {
 public:
  TokenReader(std::vector<Token> tokens, const std::string& name) : tokens_(std::move(tokens)), name_(name) {}

  [[nodiscard]] const Token& current() const { return tokens_[at_]; }
  [[nodiscard]] const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take();
  [[nodiscard]] bool is(Token::Kind kind) const { return current().kind == kind; }
  [[nodiscard]] bool is_symbol(std::string_view text) const {
    return is(Token::Kind::symbol) && current().text == text;
  }
  [[nodiscard]] bool is_name(std::string_view text) const { return is(Token::Kind::name) && current().text == text; }
  /// Takes the token if it is this one.
  bool skip_symbol(std::string_view text) { return is_symbol(text) && (take(), true); }
  bool skip_name(std::string_view text) { return is_name(text) && (take(), true); }
  void expect_symbol(std::string_view text);
  std::string expect_name();
  void expect(Token::Kind kind, const char* what);

  [[noreturn]] void fail(const std::string& what, int line, const std::string& what_to_do = {}) const;
  [[noreturn]] void fail(const std::string& what) const { fail(what, current().line); }
  [[noreturn]] void unexpected(const std::string& wanted = {}) const;

 private:
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  const std::string& name_;
};

class ExpressionParser {
 public:
  ExpressionParser(TokenReader& tokens, Program& program) : tokens_(tokens), program_(program) {}

  enum class Conditions : unsigned char { allowed, not_allowed };
  [[nodiscard]] ExpressionPtr expression(Conditions conditions = Conditions::allowed);
  /// One expression, or several with commas, which are a tuple.
  [[nodiscard]] ExpressionPtr tuple(Conditions conditions = Conditions::allowed, bool parentheses = false);
  /// The filters of a filter block: from a name on.
  [[nodiscard]] ExpressionPtr filters_of_body();
  /// `|filter|filter` behind the value, if there are any.
  [[nodiscard]] ExpressionPtr filtered(ExpressionPtr value);
  [[nodiscard]] ExpressionPtr body_value(int line);
  [[nodiscard]] ExpressionPtr unary(bool with_filters = true);
  [[nodiscard]] int id_of(const std::string& name);

  /// Filters and tests that are not known so far. As in jinja2, those in an `if` are an error only where they are
  /// reached: `forgive` drops those read since there were `known` of them.
  [[nodiscard]] std::size_t unknown() const { return unknown_.size(); }
  void forgive(std::size_t known) { unknown_.resize(known); }
  /// Throws if there are others.
  void refuse_unknown() const {
    if (!unknown_.empty()) tokens_.fail(unknown_.front().what, unknown_.front().line);
  }

 private:
  struct Unknown {
    std::string what;
    int line = 1;
  };
  using Rule = ExpressionPtr (ExpressionParser::*)();
  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr primary();
  ExpressionPtr string_constant();
  ExpressionPtr name();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr value);
  ExpressionPtr filters_and_tests(ExpressionPtr value);
  ExpressionPtr dot(ExpressionPtr value);
  ExpressionPtr subscript(ExpressionPtr value);
  ExpressionPtr call(ExpressionPtr value);
  ExpressionPtr filter(ExpressionPtr value);
  ExpressionPtr test(ExpressionPtr value);
  void arguments(Expression& call);
  bool is_tuple_end() const;

  ExpressionPtr make(Expression::Kind kind, int line) const;
  /// Adds a part; refuses trees that are too deep.
  void add(Expression& to, ExpressionPtr part) const;

  TokenReader& tokens_;
  Program& program_;
  std::map<std::string, int> ids_;
  std::vector<Unknown> unknown_;
  int nesting_ = 0;
};

}  // namespace tessera::io::jinja
