// SPDX-License-Identifier: Apache-2.0
// The lexer: text, tags and their white space control; names, numbers, strings and operators inside tags.
#include "io/jinja/lexer.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include "io/jinja/python_text.hpp"
#include "io/jinja/string_literal.hpp"
#include "io/jinja/template.hpp"
#include "io/tokenizer/utf8.hpp"

namespace tessera::io::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_'; }

class Lexer {
 public:
  Lexer(std::string_view text, const std::string& name) : name_(name) {
    // Line ends become \n; one at the end of the template is dropped.
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
      source_ += text[i] == '\r' ? '\n' : text[i];
    }
    if (source_.ends_with('\n')) source_.pop_back();
    text_ = source_;
  }

  std::vector<Token> run() {
    while (at_ < text_.size()) outside();
    add(Token::Kind::end);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw TemplateError(what, name_, line_); }

  [[nodiscard]] bool here(std::string_view wanted) const { return text_.substr(at_).starts_with(wanted); }
  [[nodiscard]] std::size_t after_white(std::size_t at) const {
    return text_.size() - stripped(text_.substr(at), Side::left).size();
  }
  void move_to(std::size_t at) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    at_ = at;
  }
  Token& add(Token::Kind kind, std::string text = {}) {
    tokens_.push_back({kind, line_, std::move(text), 0, 0});
    return tokens_.back();
  }

  /// The text before a tag, without the white space that the tag's sign, or lstrip_blocks, takes from it.
  [[nodiscard]] std::string_view before_tag(std::string_view data, char sign, bool variable) const {
    if (sign == '-') return stripped(data, Side::right);
    if (sign == '+' || variable) return data;
    const std::size_t newline = data.rfind('\n');
    const std::size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (line_begin == 0 && !line_starts_) return data;
    const bool white = stripped(data.substr(line_begin), Side::both).empty();
    return white ? data.substr(0, line_begin) : data;
  }

  void add_data(std::string_view data) {
    if (!data.empty()) add(Token::Kind::data, std::string(data));
  }

  /// Text up to the next tag, and the tag.
  void outside() {
    std::size_t tag = text_.find('{', at_);
    while (tag != std::string_view::npos &&
           (tag + 1 >= text_.size() || std::string_view("%{#").find(text_[tag + 1]) == std::string_view::npos))
      tag = text_.find('{', tag + 1);
    if (tag == std::string_view::npos) {
      add_data(text_.substr(at_));
      at_ = text_.size();
      return;
    }
    const char kind = text_[tag + 1];
    const char next = tag + 2 < text_.size() ? text_[tag + 2] : ' ';
    const char sign = next == '-' || next == '+' ? next : ' ';
    add_data(before_tag(text_.substr(at_, tag - at_), sign, kind == '{'));
    move_to(tag);
    const std::size_t inside = tag + (sign == ' ' ? 2 : 3);
    if (kind == '#') return comment(inside);
    if (kind == '%' && raw(inside)) return;
    add(kind == '%' ? Token::Kind::block_begin : Token::Kind::variable_begin);
    move_to(inside);
    tag_content(kind == '%');
  }

  /// Goes behind the end of a tag: `end` with its sign. `trims`: without a sign it takes a newline with it.
  void close(std::size_t at, std::string_view end, bool trims) {
    const char sign = text_[at] == end[0] ? ' ' : text_[at];
    std::size_t behind = at + end.size() + (sign == ' ' ? 0 : 1);
    if (sign == '-') behind = after_white(behind);
    if (sign == ' ' && trims && behind < text_.size() && text_[behind] == '\n') ++behind;
    move_to(behind);
    line_starts_ = text_[behind - 1] == '\n';
  }

  void comment(std::size_t inside) {
    const std::size_t end = text_.find("#}", inside);
    if (end == std::string_view::npos) fail("the comment has no end");
    const bool sign = end > inside && (text_[end - 1] == '-' || text_[end - 1] == '+');
    close(sign ? end - 1 : end, "#}", true);
  }

  /// The end of `{% word %}` after its sign, if that is what is at `at`: where its closing part begins.
  [[nodiscard]] std::size_t tag_word(std::size_t at, std::string_view word, bool plus) const {
    at = after_white(at);
    if (!text_.substr(at).starts_with(word)) return std::string_view::npos;
    at = after_white(at + word.size());
    const std::string_view rest = text_.substr(at);
    const bool ends = rest.starts_with("%}") || rest.starts_with("-%}") || (plus && rest.starts_with("+%}"));
    return ends ? at : std::string_view::npos;
  }

  /// A raw block, if there is one: its content is text.
  bool raw(std::size_t inside) {
    const std::size_t begin_end = tag_word(inside, "raw", false);
    if (begin_end == std::string_view::npos) return false;
    close(begin_end, "%}", false);
    for (std::size_t tag = text_.find("{%", at_); tag != std::string_view::npos; tag = text_.find("{%", tag + 1)) {
      const char next = tag + 2 < text_.size() ? text_[tag + 2] : ' ';
      const char sign = next == '-' || next == '+' ? next : ' ';
      const std::size_t end = tag_word(tag + (sign == ' ' ? 2 : 3), "endraw", true);
      if (end == std::string_view::npos) continue;
      add_data(before_tag(text_.substr(at_, tag - at_), sign, false));
      move_to(end);
      close(end, "%}", true);
      return true;
    }
    fail("the raw block has no {% endraw %}");
  }

  void tag_content(bool block) {
    const std::string_view end = block ? "%}" : "}}";
    std::string open;  // brackets
    for (;;) {
      if (open.empty()) {
        const bool minus = here(std::string("-") + std::string(end)), plus = block && here("+%}");
        if (minus || plus || here(end)) {
          add(block ? Token::Kind::block_end : Token::Kind::variable_end);
          return close(at_, end, block);
        }
      }
      if (at_ >= text_.size()) fail(block ? "the tag has no %}" : "the expression has no }}");
      const std::size_t behind = after_white(at_);
      if (behind > at_) move_to(behind);
      else if (!number() && !name() && !string()) symbol(open);
    }
  }

  void symbol(std::string& open) {
    constexpr std::array<std::string_view, 6> pairs = {"//", "**", "==", "!=", ">=", "<="};
    const auto pair = std::find_if(pairs.begin(), pairs.end(), [&](std::string_view p) { return here(p); });
    const std::string text(text_.substr(at_, pair == pairs.end() ? 1 : 2));
    if (pair == pairs.end() && std::string_view("+-/*%~[](){}<>=.:|,;").find(text[0]) == std::string_view::npos)
      fail("unexpected character '" +
           std::string(text_.substr(at_, static_cast<std::size_t>(utf8::read(text_.data() + at_).length))) + "'");
    if (text == "(" || text == "[" || text == "{") open += text == "(" ? ')' : text == "[" ? ']' : '}';
    if (text == ")" || text == "]" || text == "}") {
      if (open.empty()) fail("unexpected '" + text + "'");
      if (open.back() != text[0]) fail("unexpected '" + text + "', expected '" + open.back() + "'");
      open.pop_back();
    }
    add(Token::Kind::symbol, text);
    move_to(at_ + text.size());
  }

  bool name() {
    std::size_t end = at_;
    while (end < text_.size() &&
           (is_letter(text_[end]) || is_digit(text_[end]) || static_cast<unsigned char>(text_[end]) >= 0x80))
      ++end;
    if (end == at_) return false;
    const std::string text(text_.substr(at_, end - at_));
    const bool ascii =
        std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
    if (!ascii) fail("the name '" + text + "' has characters other than ASCII letters, digits and _");
    add(Token::Kind::name, text);
    move_to(end);
    return true;
  }

  bool string() {
    const char quote = text_[at_];
    if (quote != '"' && quote != '\'') return false;
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fail("the string has no end");
    const std::string problem = unescape(text_.substr(at_ + 1, end - at_ - 1), add(Token::Kind::string).text);
    if (!problem.empty()) fail(problem);
    move_to(end + 1);
    return true;
  }

  /// Digits with single underscores between them, from `at`.
  [[nodiscard]] std::size_t digits(std::size_t at) const {
    while (at < text_.size() &&
           (is_digit(text_[at]) || (text_[at] == '_' && at + 1 < text_.size() && is_digit(text_[at + 1]))))
      ++at;
    return at;
  }

  bool number() {
    if (!is_digit(text_[at_])) return false;
    const auto character = [this](std::size_t at) { return at < text_.size() ? text_[at] : ' '; };
    const char base_letter = static_cast<char>(character(at_ + 1) | 0x20);
    if (text_[at_] == '0' && (base_letter == 'x' || base_letter == 'o' || base_letter == 'b'))
      fail("numbers in another base than ten are not supported");
    const bool after_dot = at_ > 0 && text_[at_ - 1] == '.';
    std::size_t end = digits(at_);
    bool real = false;
    if (!after_dot && character(end) == '.' && is_digit(character(end + 1))) {
      end = digits(end + 1);
      real = true;
    }
    if (!after_dot && (character(end) | 0x20) == 'e') {
      const std::size_t exponent = end + (character(end + 1) == '+' || character(end + 1) == '-' ? 2 : 1);
      if (is_digit(character(exponent))) {
        end = digits(exponent);
        real = true;
      }
    }
    std::string text(text_.substr(at_, end - at_));
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    if (!real && text.size() > 1 && text[0] == '0' && text.find_first_not_of('0') != std::string::npos)
      fail("the number " + text + " begins with 0");
    Token& token = add(real ? Token::Kind::real : Token::Kind::integer, text);
    if (real) token.real = std::strtod(text.c_str(), nullptr);
    else if (std::from_chars(text.data(), text.data() + text.size(), token.integer).ec != std::errc())
      fail("the number " + text + " does not fit 64 bits");
    move_to(end);
    return true;
  }

  const std::string& name_;
  std::string source_;
  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // what is before `at_` ends a line, or nothing is before it
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view text, const std::string& name) { return Lexer(text, name).run(); }

}  // namespace tessera::io::jinja
