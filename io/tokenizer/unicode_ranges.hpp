// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ranges of code points, sorted, as Hugging Face's `tokenizers` has them: `\p{L}`, `\p{N}`, `\p{M}` and White_Space of
// Unicode 16.0 (split patterns), the numbers that Rust's newer Unicode adds (Digits), and `\w` (single_word). Made by
// tests/io/tokenizer/make_ranges.py.

#include <cstdint>
#include <span>

namespace tessera::io::unicode {

struct Range {
  std::uint32_t first = 0, last = 0;  // both included
};
[[nodiscard]] std::span<const Range> letter_ranges();
[[nodiscard]] std::span<const Range> number_ranges();
[[nodiscard]] std::span<const Range> space_ranges();
[[nodiscard]] std::span<const Range> mark_ranges();
[[nodiscard]] std::span<const Range> newer_number_ranges();
[[nodiscard]] std::span<const Range> word_ranges();

}  // namespace tessera::io::unicode
