// SPDX-License-Identifier: Apache-2.0
#pragma once
// Splits text into pieces before BPE: hand-written matchers for the known split patterns, without regular expressions.

#include <optional>
#include <string_view>

namespace tessera::io {

enum class SplitPattern : unsigned char {
  gpt2,    // ByteLevel: contractions, ` ?\p{L}+`, ` ?\p{N}+`, ` ?[^\s\p{L}\p{N}]+`, white space
  llama3,  // contractions of any case, a letter run with one character before it, numbers of up to three digits,
           // newlines apart
  qwen2,   // llama3's with numbers of one digit
  qwen35,  // qwen2's where combining marks (\p{M}) are part of letter runs
};

/// The pattern of a regular expression in tokenizer.json; absent unless it is one of these exactly.
[[nodiscard]] std::optional<SplitPattern> split_pattern(std::string_view regex);
[[nodiscard]] const char* name_of(SplitPattern pattern);

/// The end of the piece that begins at `at`, which is before `end`; [at, end) is UTF-8. Linear in the length of
/// the piece and of white space after it.
[[nodiscard]] const char* piece_end(SplitPattern pattern, const char* at, const char* end);

}  // namespace tessera::io
