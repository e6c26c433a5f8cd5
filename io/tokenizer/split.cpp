// SPDX-License-Identifier: Apache-2.0
// The split patterns, alternative by alternative.

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

/// `\s*[\r\n]+|\s+(?!\S)|\s+` at white space: up to the last newline of the run, if it has one.
const char* spaces(const char* at, const char* end) {
  const char* const stop = run(unicode::space, at, end);
  for (const char* last = stop; last != at; --last)
    if (is_newline(last[-1])) return last;
  return white_space(at, stop, end);
}

/// Behind a first number: up to `digits` with it.
const char* numbers(int digits, const char* at, const char* end) {
  for (int i = 1; i < digits && at != end; ++i) {
    const Char more = look(at, end);
    if (more.kind != unicode::number) break;
    at = more.next;
  }
  return at;
}

template <Marks marks = Marks::other>
const char* newer_piece(int digits, const char* at, const char* end) {
  if (*at == '\'') {
    if (const char* stop = contraction(true, at, end)) return stop;
  }
  const Char first = look<marks>(at, end);
  if (first.kind == unicode::letter) return run<marks>(unicode::letter, first.next, end);
  if (first.kind == unicode::number) return numbers(digits, first.next, end);  // \p{N}{1,3} or \p{N}
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
  return spaces(at, end);
}

/// Past the characters that `is_member` takes.
template <class Member>
const char* run_of(const Member& is_member, const char* at, const char* end) {
  while (at != end) {
    const utf8::Point point = utf8::read(at);
    if (!is_member(point.code)) break;
    at += point.length;
  }
  return at;
}

/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+` at `at`, or null.
const char* word_to_lower(const char* at, const char* end) {
  const char* last = nullptr;  // behind the last character of the first part that the second one takes too
  const char* stop = at;
  while (stop != end) {
    const utf8::Point point = utf8::read(stop);
    if (!unicode::may_be_upper(point.code)) {
      if (unicode::may_be_lower(point.code)) return run_of(unicode::may_be_lower, stop + point.length, end);
      break;
    }
    stop += point.length;
    if (unicode::may_be_lower(point.code)) last = stop;
  }
  return last;
}

/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*` at `at`, or null.
const char* word_from_upper(const char* at, const char* end) {
  const char* const stop = run_of(unicode::may_be_upper, at, end);
  return stop == at ? nullptr : run_of(unicode::may_be_lower, stop, end);
}

/// o200k, and Tekken, which has no contractions.
const char* o200k_piece(int digits, bool contractions, const char* at, const char* end) {
  const Char first = look(at, end);
  // `[^\r\n\p{L}\p{N}]?` before a word; without it if what follows is none
  const bool may_lead = first.kind != unicode::letter && first.kind != unicode::number && !is_newline(*at);
  const bool may_begin = unicode::is_letter_or_mark(first.code);
  for (const auto word : {word_to_lower, word_from_upper}) {
    const char* stop = may_lead ? word(first.next, end) : nullptr;
    if (stop == nullptr && may_begin) stop = word(at, end);
    if (stop == nullptr) continue;
    const char* const more = contractions && stop != end && *stop == '\'' ? contraction(true, stop, end) : nullptr;
    return more != nullptr ? more : stop;
  }
  if (first.kind == unicode::number) return numbers(digits, first.next, end);
  const Char second = look(first.next, end);
  // ` ?[^\s\p{L}\p{N}]+[\r\n/]*`
  if (first.kind == unicode::other || (*at == ' ' && second.next != nullptr && second.kind == unicode::other)) {
    const char* stop = run(unicode::other, first.next, end);
    while (stop != end && (is_newline(*stop) || *stop == '/')) ++stop;
    return stop;
  }
  return spaces(at, end);
}

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// The words of DeepSeek at `at`, or null.
const char* deepseek_word(const char* at, const char* end) {
  const Char first = look(at, end);
  const bool symbol = unicode::is_symbol(first.code);
  if (symbol && first.code < 0x80 && first.next != end && is_ascii_letter(*first.next)) {
    const char* stop = first.next;
    while (stop != end && is_ascii_letter(*stop)) ++stop;
    return stop;
  }
  // `[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+`: a mark in front of a run is its first character either way
  if (unicode::is_letter_or_mark(first.code)) return run_of(unicode::is_letter_or_mark, first.next, end);
  const Char second = look(first.next, end);
  if (second.next != nullptr && !symbol && !is_newline(*at) && unicode::is_letter_or_mark(second.code))
    return run_of(unicode::is_letter_or_mark, second.next, end);
  // ` ?[\p{P}\p{S}]+[\r\n]*`
  if (symbol || (*at == ' ' && second.next != nullptr && unicode::is_symbol(second.code))) {
    const char* stop = run_of(unicode::is_symbol, first.next, end);
    while (stop != end && is_newline(*stop)) ++stop;
    return stop;
  }
  return first.kind == unicode::space ? spaces(at, end) : nullptr;
}

const char* deepseek_piece(const char* at, const char* end) {
  if (const char* stop = deepseek_word(at, end)) return stop;
  // Numbers and control characters: up to one that a letter follows, or to another kind of character.
  do at = look(at, end).next;
  while (at != end && deepseek_word(at, end) == nullptr);
  return at;
}

const char* three_numbers_piece(const char* at, const char* end) {
  const Char first = look(at, end);
  if (first.kind == unicode::number) return numbers(3, first.next, end);
  return run_of([](char32_t code) { return unicode::classify(code) != unicode::number; }, first.next, end);
}

bool is_cjk(char32_t code) { return (code >= 0x4E00 && code <= 0x9FA5) || (code >= 0x3040 && code <= 0x30FF); }

const char* cjk_piece(const char* at, const char* end) {
  const bool inside = is_cjk(utf8::read(at).code);
  return run_of([inside](char32_t code) { return is_cjk(code) == inside; }, at, end);
}

const char* three_digits_piece(const char* at, const char* end) {
  const auto is_digit = [end](const char* p) { return p < end && *p >= '0' && *p <= '9'; };
  const auto matches = [&](const char* p) { return is_digit(p) && is_digit(p + 1) && is_digit(p + 2); };
  if (matches(at)) return at + 3;
  do ++at;
  while (at != end && !matches(at));
  return at;
}

}  // namespace

namespace {

struct KnownPattern {
  SplitPattern pattern;
  const char* name;
  bool covers, ends_at_newlines;
  std::string_view regex;
};
constexpr KnownPattern known_patterns[] = {
    {SplitPattern::gpt2, "GPT-2", true, true,
     R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {SplitPattern::llama3, "Llama 3", true, true,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitPattern::qwen2, "Qwen2", true, true,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitPattern::qwen35, "Qwen3.5", true, true,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitPattern::o200k, "o200k", true, true,
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitPattern::tekken, "Tekken", true, true,
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitPattern::deepseek, "DeepSeek", false, true,
     R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitPattern::three_numbers, "three numbers", false, false, R"(\p{N}{1,3})"},
    {SplitPattern::cjk, "CJK", false, false, "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+"},
    {SplitPattern::three_digits, "three digits", false, false, "[0-9][0-9][0-9]"},
};
const KnownPattern& known(SplitPattern pattern) { return known_patterns[static_cast<std::size_t>(pattern)]; }

}  // namespace

std::optional<SplitPattern> split_pattern(std::string_view regex) {
  for (const KnownPattern& one : known_patterns)
    if (one.regex == regex) return one.pattern;
  return std::nullopt;
}

const char* name_of(SplitPattern pattern) { return known(pattern).name; }
bool covers_text(SplitPattern pattern) { return known(pattern).covers; }
bool ends_at_newlines(SplitPattern pattern) { return known(pattern).ends_at_newlines; }

const char* piece_end(SplitPattern pattern, const char* at, const char* end) {
  switch (pattern) {
    case SplitPattern::gpt2: return gpt2_piece(at, end);
    case SplitPattern::llama3: return newer_piece(3, at, end);
    case SplitPattern::qwen2: return newer_piece(1, at, end);
    case SplitPattern::qwen35: return newer_piece<Marks::letters>(1, at, end);
    case SplitPattern::o200k: return o200k_piece(3, true, at, end);
    case SplitPattern::tekken: return o200k_piece(1, false, at, end);
    case SplitPattern::deepseek: return deepseek_piece(at, end);
    case SplitPattern::three_numbers: return three_numbers_piece(at, end);
    case SplitPattern::cjk: return cjk_piece(at, end);
    case SplitPattern::three_digits: return three_digits_piece(at, end);
  }
  return end;
}

}  // namespace tessera::io
