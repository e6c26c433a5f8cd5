// SPDX-License-Identifier: Apache-2.0
#pragma once
// Unicode properties in the versions that Hugging Face's `tokenizers` uses (decision 0010): the classes of split
// patterns, word characters, and normalization form C.

#include <string>
#include <string_view>

namespace tessera::io::unicode {

enum Class : unsigned char { other, letter, number, space };  // \p{L}, \p{N}, \s (White_Space); disjoint

namespace detail {
extern const unsigned char* class_table;  // of every code point; null until the first tokenizer is loaded
constexpr unsigned char mark_bit = 8;     // set beside class `other`
}  // namespace detail
/// Makes the table of classes, once; thread-safe. classify() needs it.
void prepare_classes();
/// Class of a code point below U+110000.
[[nodiscard]] inline Class classify(char32_t code) {
  return static_cast<Class>(detail::class_table[code] & ~detail::mark_bit);
}
/// `\p{M}`: combining marks, which are of class `other`. Needs prepare_classes().
[[nodiscard]] inline bool is_mark(char32_t code) { return (detail::class_table[code] & detail::mark_bit) != 0; }

/// `\w` of Rust's regex: alphabetic, mark, decimal number, connector, join control.
[[nodiscard]] bool is_word(char32_t code);
/// Rust's char::is_numeric: the class `number`, and numbers of newer Unicode versions.
[[nodiscard]] bool is_numeric(char32_t code);

/// NFC of a UTF-8 text by the tables of Unicode 9.0. `buffer` holds the result if it differs from the text. Time is
/// linear in the length of the text.
[[nodiscard]] std::string_view nfc(std::string_view text, std::string& buffer);
/// A canonically equivalent text, in which every run of more than 64 bytes of marks is decomposed and in canonical
/// order (stable counting sort by combining class). `buffer` holds it if it differs. A step of nfc().
[[nodiscard]] std::string_view order_marks(std::string_view text, std::string& buffer);

}  // namespace tessera::io::unicode
