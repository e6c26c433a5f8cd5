#pragma once
// Ranges of code points of Unicode 16.0: \p{L}, \p{N}, White_Space. Made by tests/io/tokenizer/make_ranges.py.

#include <cstdint>
#include <span>

namespace tessera::io::unicode {

struct Range {
  std::uint32_t first = 0, last = 0;  // both included
};
[[nodiscard]] std::span<const Range> letter_ranges();
[[nodiscard]] std::span<const Range> number_ranges();
[[nodiscard]] std::span<const Range> space_ranges();

}  // namespace tessera::io::unicode
