// SPDX-License-Identifier: Apache-2.0
// Finds the tables by brackets and keys, and reads them by the grammar of JSON.

#include "io/tokenizer/token_tables.hpp"

#include <algorithm>
#include <charconv>

#include "io/file/file.hpp"
#include "io/tokenizer/utf8.hpp"

namespace tessera::io {

Error damaged_tokenizer(const std::string& what, const std::string& where) {
  return Error(ExitCode::data, "this tokenizer.json is damaged: " + what, where, "Fetch the file again");
}

std::string TokenTableReader::rest() {
  std::string rest;
  std::size_t copied = 0, depth = 0;
  bool in_model = false;
  std::string_view key;  // the last string outside of the tables
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '"') {
      const std::size_t begin = at_ + 1;
      skip_string();
      key = text_.substr(begin, at_ - begin);
      at_ = std::min(at_ + 1, text_.size());
      continue;
    }
    const bool opens = c == '{' || c == '[';
    if (opens && depth == 2 && in_model && key == (c == '{' ? "vocab" : "merges")) {
      rest += text_.substr(copied, at_ + 1 - copied);
      const std::size_t begin = ++at_;
      c == '{' ? read_vocab() : read_merges();
      cuts_.emplace_back(rest.size(), at_ - begin);
      copied = at_++;  // the closing bracket is part of the rest
      continue;
    }
    if (opens && ++depth == 2) in_model = c == '{' && key == "model";
    if ((c == '}' || c == ']') && depth > 0) --depth;
    ++at_;
  }
  return rest += text_.substr(copied);
}

std::size_t TokenTableReader::place(std::size_t at) const {
  std::size_t left_out = 0;
  for (const auto& [begin, bytes] : cuts_)
    if (at > begin) left_out += bytes;
  return at + left_out;
}

/// To the quote that ends the string that begins at at_, or to the end.
void TokenTableReader::skip_string() {
  for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_)
    if (text_[at_] == '\\') ++at_;
  at_ = std::min(at_, text_.size());
}

/// The next character that is not white; at_ is its place.
char TokenTableReader::next() {
  const auto is_white = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
  while (at_ < text_.size() && is_white(text_[at_])) ++at_;
  if (at_ == text_.size()) throw not_json();
  return text_[at_];
}

/// From behind the opening bracket to the closing one.
void TokenTableReader::read_vocab() {
  if (next() == '}') return;
  for (;;) {
    const std::string_view token = read_string();
    if (next() != ':') throw not_json();
    ++at_;
    out_.vocab.emplace_back(token, read_id(token));
    const char c = next();
    if (c == '}') return;
    if (c != ',') throw not_json();
    ++at_;
  }
}

std::int64_t TokenTableReader::read_id(std::string_view token) {
  const char c = next();
  if (c == '{') throw refuse("a table inside the vocabulary");
  if (c == '[') throw refuse("a list inside the vocabulary");
  std::int64_t id = 0;
  const char* const begin = text_.data() + at_;
  const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), id);
  const auto digits = static_cast<std::size_t>(end - begin);
  if (error == std::errc::result_out_of_range || id > 0x7FFFFFFF)
    throw refuse("an id beyond 31 bits: " + std::string(begin, digits));
  const bool is_real = end != text_.data() + text_.size() && (*end == '.' || *end == 'e' || *end == 'E');
  if (error != std::errc() || is_real) throw refuse("the token " + quote_name(token) + " has no integer id");
  if (digits > 1 && *begin == '0') throw not_json();
  at_ += digits;
  return id;
}

/// As read_vocab.
void TokenTableReader::read_merges() {
  if (next() == ']') return;
  for (;;) {
    read_merge();
    const char c = next();
    if (c == ']') return;
    if (c != ',') throw not_json();
    ++at_;
  }
}

/// "a b", or ["a", "b"].
void TokenTableReader::read_merge() {
  const auto require_text = [this](char c) {
    if (c == '{') throw refuse("a table inside the merges");
    if (c != '"') throw refuse("a merge that is not text");
  };
  if (next() != '[') {
    require_text(text_[at_]);
    return add_merge(read_string());
  }
  std::pair<std::string_view, std::string_view> pair;
  std::size_t count = 0;
  ++at_;
  for (char c = next(); c != ']';) {
    if (c == '[') throw refuse("a merge is a list of lists");
    require_text(c);
    (count++ == 0 ? pair.first : pair.second) = read_string();
    c = next();
    if (c == ']') break;
    if (c != ',') throw not_json();
    ++at_;
    c = next();
    if (c == ']') throw not_json();
  }
  if (count != 2) throw refuse("a merge of " + std::to_string(count) + " tokens");
  ++at_;
  out_.merges.push_back(pair);
}

void TokenTableReader::add_merge(std::string_view text) {
  if (text.starts_with("#version")) return;  // the first line of merges.txt
  const std::size_t blank = text.find(' ');
  if (blank == text.npos || text.find(' ', blank + 1) != text.npos)
    throw refuse("the merge " + quote_name(text) + " is not two tokens");
  out_.merges.emplace_back(text.substr(0, blank), text.substr(blank + 1));
}

/// In the text, or, if it has escapes, in out_.unescaped.
std::string_view TokenTableReader::read_string() {
  if (next() != '"') throw not_json();
  const std::size_t begin = ++at_;
  const auto is_plain = [this] {
    if (at_ == text_.size() || static_cast<unsigned char>(text_[at_]) < 0x20) throw not_json();
    return text_[at_] != '"' && text_[at_] != '\\';
  };
  while (is_plain()) ++at_;
  if (text_[at_] == '"') return text_.substr(begin, at_++ - begin);
  std::string& made = out_.unescaped.emplace_back(text_.substr(begin, at_ - begin));
  for (;; made += text_[at_++]) {
    while (!is_plain() && text_[at_] == '\\') unescape(made);
    if (text_[at_] == '"') break;
  }
  ++at_;
  return made;
}

/// Behind the escape at at_.
void TokenTableReader::unescape(std::string& made) {
  constexpr std::string_view letters = "\"\\/bfnrt", meant = "\"\\/\b\f\n\r\t";
  if (++at_ == text_.size()) throw not_json();
  if (const std::size_t found = letters.find(text_[at_]); found != letters.npos) {
    made += meant[found];
    ++at_;
    return;
  }
  char32_t code = hex_code();
  if (code >= 0xD800 && code < 0xDC00) {  // the first of a pair
    if (at_ == text_.size() || text_[at_++] != '\\' || at_ == text_.size()) throw not_json();
    const char32_t low = hex_code();
    if (low < 0xDC00 || low > 0xDFFF) throw not_json();
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  } else if (code >= 0xDC00 && code <= 0xDFFF) {
    throw not_json();
  }
  utf8::append(made, code);
}

/// Of uNNNN at at_.
char32_t TokenTableReader::hex_code() {
  if (text_[at_] != 'u' || at_ + 5 > text_.size()) throw not_json();
  unsigned code = 0;
  const char* const begin = text_.data() + at_ + 1;
  const auto [end, error] = std::from_chars(begin, begin + 4, code, 16);
  if (error != std::errc() || end != begin + 4) throw not_json();
  at_ += 5;
  return code;
}

}  // namespace tessera::io
