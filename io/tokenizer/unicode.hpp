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
// Beside the class, in its two lowest bits:
constexpr unsigned char class_bits = 3, mark_bit = 8, upper_bit = 16, lower_bit = 32, symbol_bit = 64,
                        punctuation_bit = 128;
}  // namespace detail
/// Makes the table of classes, once; thread-safe. The functions on classes need it.
void prepare_classes();
/// Class of a code point below U+110000.
[[nodiscard]] inline Class classify(char32_t code) {
  return static_cast<Class>(detail::class_table[code] & detail::class_bits);
}
/// `\p{M}`: combining marks, which are of class `other`.
[[nodiscard]] inline bool is_mark(char32_t code) { return (detail::class_table[code] & detail::mark_bit) != 0; }
/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]` and `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`: what may be in the upper-case and the
/// lower-case part of a word.
[[nodiscard]] inline bool may_be_upper(char32_t code) { return (detail::class_table[code] & detail::upper_bit) != 0; }
[[nodiscard]] inline bool may_be_lower(char32_t code) { return (detail::class_table[code] & detail::lower_bit) != 0; }
/// `[\p{L}\p{M}]`.
[[nodiscard]] inline bool is_letter_or_mark(char32_t code) {
  return (detail::class_table[code] & (detail::upper_bit | detail::lower_bit)) != 0;
}
/// `[\p{P}\p{S}]`.
[[nodiscard]] inline bool is_symbol(char32_t code) { return (detail::class_table[code] & detail::symbol_bit) != 0; }
/// What the pre-tokenizer Punctuation separates.
[[nodiscard]] inline bool is_punctuation(char32_t code) {
  return (detail::class_table[code] & detail::punctuation_bit) != 0;
}

/// `\w` of Rust's regex: alphabetic, mark, decimal number, connector, join control.
[[nodiscard]] bool is_word(char32_t code);
/// Rust's char::is_numeric: the class `number`, and numbers of newer Unicode versions.
[[nodiscard]] bool is_numeric(char32_t code);

/// Unicode's normal forms.
enum class Form : unsigned char { nfc, nfkc };
/// A normal form of a UTF-8 text by the tables of Unicode 9.0. `buffer` holds the result if it differs from the text.
/// Time is linear in the length of the text.
[[nodiscard]] std::string_view normalize(Form form, std::string_view text, std::string& buffer);
/// A canonically equivalent text, in which every run of more than 64 bytes of marks is decomposed and in canonical
/// order (stable counting sort by combining class). `buffer` holds it if it differs. A step of
/// normalize().
[[nodiscard]] std::string_view order_marks(Form form, std::string_view text, std::string& buffer);

}  // namespace tessera::io::unicode
