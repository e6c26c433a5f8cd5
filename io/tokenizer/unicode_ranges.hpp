// SPDX-License-Identifier: Apache-2.0
#pragma once
// Properties of code points as Hugging Face's `tokenizers` has them: general categories, White_Space and `\w` of
// Unicode 16.0 (split patterns), the numbers that Rust's newer Unicode adds (Digits), `\w` of Rust's regex
// (single_word), and punctuation (Punctuation). Made by tests/io/tokenizer/make_ranges.py.

#include <cstdint>
#include <span>

namespace tessera::io::unicode {

/// In the order of make_ranges.py.
enum Category : unsigned char {
  Cn,
  Lu,
  Ll,
  Lt,
  Lm,
  Lo,
  Mn,
  Mc,
  Me,
  Nd,
  Nl,
  No,
  Pc,
  Pd,
  Ps,
  Pe,
  Pi,
  Pf,
  Po,
  Sm,
  Sc,
  Sk,
  So,
  Zs,
  Zl,
  Zp,
  Cc,
  Cf,
  Co,
  Cs
};
/// Where runs of one category begin, ascending from 0: code point * 32 + category.
[[nodiscard]] std::span<const std::uint32_t> category_runs();

/// Of sorted ranges.
struct Range {
  std::uint32_t first = 0, last = 0;  // both included
};
[[nodiscard]] std::span<const Range> space_ranges();
[[nodiscard]] std::span<const Range> pattern_word_ranges();
[[nodiscard]] std::span<const Range> newer_number_ranges();
[[nodiscard]] std::span<const Range> word_ranges();
[[nodiscard]] std::span<const Range> punctuation_ranges();

}  // namespace tessera::io::unicode
