// SPDX-License-Identifier: Apache-2.0
#pragma once
// Hand-written matchers for the known patterns of Split and ByteLevel, without regular expressions.

#include <optional>
#include <string_view>

namespace tessera::io {

enum class SplitPattern : unsigned char {
  gpt2,    // ByteLevel: contractions, ` ?\p{L}+`, ` ?\p{N}+`, ` ?[^\s\p{L}\p{N}]+`, white space
  llama3,  // contractions of any case, a letter run with one character before it, numbers of up to three digits,
           // newlines apart
  qwen2,   // llama3's with numbers of one digit
  qwen35,  // qwen2's where combining marks (\p{M}) are part of letter runs
  o200k,   // words in which lower-case letters follow upper-case ones, with a contraction; newlines and slashes behind
           // symbols (gpt-oss, Llama 4, Phi-4-mini)
  tekken,  // o200k's without contractions, with numbers of one digit (Mistral Nemo and Small)
  deepseek,       // [\p{L}\p{M}] runs, ASCII letters behind an ASCII symbol, symbols; what is left is apart
  three_numbers,  // \p{N}{1,3}, and what is between
  cjk,            // runs of Chinese characters and Japanese syllables, and what is between (DeepSeek)
  three_digits,   // [0-9][0-9][0-9], and what is between (Falcon)
};

/// The pattern of a regular expression in tokenizer.json; absent unless it is one of these exactly.
[[nodiscard]] std::optional<SplitPattern> split_pattern(std::string_view regex);
/// True if every character of any text is in a match.
[[nodiscard]] bool covers_text(SplitPattern pattern);
/// True if pieces end at every newline between two non-space characters, the second of which is no slash.
[[nodiscard]] bool ends_at_newlines(SplitPattern pattern);
[[nodiscard]] const char* name_of(SplitPattern pattern);

/// The end of the piece (a match, or text between matches) that begins at `at`, which is before `end` and where a piece
/// begins; [at, end) is UTF-8. Linear in the length of the piece and of white space after it.
[[nodiscard]] const char* piece_end(SplitPattern pattern, const char* at, const char* end);

}  // namespace tessera::io
