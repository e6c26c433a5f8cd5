#pragma once
// How a text is cut into pieces before BPE: matchers for the known split patterns, written out by hand. No regular
// expressions.

#include <optional>
#include <string_view>

namespace tessera::io {

enum class SplitPattern : unsigned char {
  gpt2,    // ByteLevel's own: contractions, ` ?\p{L}+`, ` ?\p{N}+`, ` ?[^\s\p{L}\p{N}]+`, white space
  llama3,  // contractions of any case, a letter run with one character before it, numbers of up to three digits,
           // newlines apart
  qwen2,   // llama3's with numbers of one digit
};

/// The pattern of a tokenizer.json's regular expression; absent if it is none of these, to the letter.
[[nodiscard]] std::optional<SplitPattern> split_pattern(std::string_view regex);
[[nodiscard]] const char* name_of(SplitPattern pattern);

/// The end of the piece that begins at `at`, which is before `end`; [at, end) is UTF-8. Takes time linear in the piece,
/// and in the run of white space that it is cut from.
[[nodiscard]] const char* piece_end(SplitPattern pattern, const char* at, const char* end);

}  // namespace tessera::io
