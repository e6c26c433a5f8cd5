// SPDX-License-Identifier: Apache-2.0
// The split patterns, alternative by alternative. Some alternative matches every character, so the pieces cover the
// text.

#include "io/tokenizer/split.hpp"

#include "io/tokenizer/unicode.hpp"
#include "io/tokenizer/utf8.hpp"

namespace tessera::io {

namespace {

using unicode::Class;

/// A character: its end and its class. At the end of the text `next` is null.
struct Char {
  const char* next = nullptr;
  Class kind = unicode::other;
  char32_t code = 0;
};
/// Marks are of class `other`, or letters as in [\p{L}\p{M}].
enum class Marks : unsigned char { other, letters };
template <Marks marks = Marks::other>
Class class_of(char32_t code) {
  if (marks == Marks::letters && unicode::is_mark(code)) return unicode::letter;
  return unicode::classify(code);
}
template <Marks marks = Marks::other>
Char look(const char* at, const char* end) {
  if (at == end) return {};
  const utf8::Point point = utf8::read(at);
  return {at + point.length, class_of<marks>(point.code), point.code};
}

/// Past the characters of one class.
template <Marks marks = Marks::other>
const char* run(Class kind, const char* at, const char* end) {
  while (at != end) {
    const utf8::Point point = utf8::read(at);
    if (class_of<marks>(point.code) != kind) break;
    at += point.length;
  }
  return at;
}

bool is_newline(char c) { return c == '\n' || c == '\r'; }

char lower_case(char32_t code) {
  if (code == 0x17F) return 's';  // LATIN SMALL LETTER LONG S
  if (code >= 'A' && code <= 'Z') return static_cast<char>(code - 'A' + 'a');
  return code < 0x80 ? static_cast<char>(code) : '\0';
}

/// Past 's 't 're 've 'm 'll 'd at an apostrophe, or null.
const char* contraction(bool any_case, const char* at, const char* end) {
  const auto letter = [any_case](const Char& c) {
    return any_case ? lower_case(c.code) : c.code < 0x80 ? static_cast<char>(c.code) : '\0';
  };
  const Char first = look(at + 1, end);
  if (first.next == nullptr) return nullptr;
  const char a = letter(first);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return first.next;
  if (a != 'r' && a != 'v' && a != 'l') return nullptr;
  const Char second = look(first.next, end);
  if (second.next == nullptr) return nullptr;
  return letter(second) == (a == 'l' ? 'l' : 'e') ? second.next : nullptr;
}

/// `\s+(?!\S)|\s+`: white space but for the last character, which belongs to what follows; all
/// of it at the end or if it is one.
const char* white_space(const char* at, const char* stop, const char* end) {
  if (stop == end) return stop;
  const char* last = utf8::before(stop);
  return last == at ? stop : last;
}

const char* gpt2_piece(const char* at, const char* end) {
  if (*at == '\'') {
    if (const char* stop = contraction(false, at, end)) return stop;
  }
  const Char first = look(at, end);
  if (first.kind != unicode::space) return run(first.kind, first.next, end);
  if (*at == ' ') {
    const Char second = look(first.next, end);
    if (second.next != nullptr && second.kind != unicode::space) return run(second.kind, second.next, end);
  }
  return white_space(at, run(unicode::space, first.next, end), end);
}

template <Marks marks = Marks::other>
const char* newer_piece(int digits, const char* at, const char* end) {
  if (*at == '\'') {
    if (const char* stop = contraction(true, at, end)) return stop;
  }
  const Char first = look<marks>(at, end);
  if (first.kind == unicode::letter) return run<marks>(unicode::letter, first.next, end);
  if (first.kind == unicode::number) {  // \p{N}{1,3} or \p{N}
    const char* stop = first.next;
    for (int i = 1; i < digits; ++i) {
      const Char more = look<marks>(stop, end);
      if (more.next == nullptr || more.kind != unicode::number) break;
      stop = more.next;
    }
    return stop;
  }
  const Char second = look<marks>(first.next, end);
  const bool is_there = second.next != nullptr;
  // [^\r\n\p{L}\p{N}]?\p{L}+, or [\p{L}\p{M}]+: a mark in front of a run is its first character either way
  if (is_there && second.kind == unicode::letter && !is_newline(*at))
    return run<marks>(unicode::letter, second.next, end);
  // ` ?[^\s\p{L}\p{N}]+[\r\n]*`
  if (first.kind == unicode::other || (*at == ' ' && is_there && second.kind == unicode::other)) {
    const char* stop = run<marks>(unicode::other, first.next, end);
    while (stop != end && is_newline(*stop)) ++stop;
    return stop;
  }
  // `\s*[\r\n]+`: up to the last newline of the run
  const char* stop = run<marks>(unicode::space, first.next, end);
  for (const char* last = stop; last != at; --last)
    if (is_newline(last[-1])) return last;
  return white_space(at, stop, end);
}

}  // namespace

std::optional<SplitPattern> split_pattern(std::string_view regex) {
  constexpr std::string_view gpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  constexpr std::string_view llama3 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  constexpr std::string_view qwen2 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  constexpr std::string_view qwen35 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  if (regex == gpt2) return SplitPattern::gpt2;
  if (regex == llama3) return SplitPattern::llama3;
  if (regex == qwen2) return SplitPattern::qwen2;
  if (regex == qwen35) return SplitPattern::qwen35;
  return std::nullopt;
}

const char* name_of(SplitPattern pattern) {
  static constexpr const char* names[] = {"GPT-2", "Llama 3", "Qwen2", "Qwen3.5"};
  return names[static_cast<int>(pattern)];
}

const char* piece_end(SplitPattern pattern, const char* at, const char* end) {
  switch (pattern) {
    case SplitPattern::gpt2: return gpt2_piece(at, end);
    case SplitPattern::llama3: return newer_piece(3, at, end);
    case SplitPattern::qwen2: return newer_piece(1, at, end);
    case SplitPattern::qwen35: return newer_piece<Marks::letters>(1, at, end);
  }
  return end;
}

}  // namespace tessera::io
