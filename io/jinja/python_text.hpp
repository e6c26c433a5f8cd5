// SPDX-License-Identifier: Apache-2.0
#pragma once
// Texts as Python's `str` treats them: code points, white space, case, classes, floats, `repr`.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::io::jinja {

/// Code points of a UTF-8 text.
[[nodiscard]] std::size_t count_points(std::string_view text);
/// The byte at which code point `index` begins; the size of the text if it has no more than `index`.
[[nodiscard]] std::size_t byte_of_point(std::string_view text, std::size_t index);
/// Code points of a UTF-8 text, and back.
[[nodiscard]] std::u32string to_points(std::string_view text);
[[nodiscard]] std::string from_points(std::u32string_view points);

/// str.isspace of a code point.
[[nodiscard]] bool is_white(char32_t code);
enum class Side : unsigned char { both, left, right };
/// strip, lstrip, rstrip: of white space, or of the code points in `*characters`.
[[nodiscard]] std::string_view stripped(std::string_view text, Side side, const std::string* characters = nullptr);

/// upper(), lower() and capitalize() with full case mappings; title(): every letter after one that has no case.
[[nodiscard]] std::string upper(std::string_view text);
[[nodiscard]] std::string lower(std::string_view text);
[[nodiscard]] std::string capitalized(std::string_view text);
[[nodiscard]] std::string title_cased(std::string_view text);
[[nodiscard]] std::string swapped_case(std::string_view text);

/// What isalpha(), isdigit(), … of a str ask.
enum class TextClass : unsigned char { space, alpha, ascii, decimal, digit, numeric, alnum, upper, lower };
[[nodiscard]] bool in_text_class(TextClass text_class, std::string_view text);

/// splitlines(): at every line end that Python knows.
[[nodiscard]] std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
/// split() without a separator: at runs of white space; at most `limit` splits, unless it is negative.
[[nodiscard]] std::vector<std::string_view> split_white(std::string_view text, std::int64_t limit, Side from);
/// split(separator).
[[nodiscard]] std::vector<std::string_view> split_at(std::string_view text, std::string_view separator,
                                                     std::int64_t limit, Side from);

/// repr() of a float.
[[nodiscard]] std::string repr_of(double value);
/// repr() of a str.
[[nodiscard]] std::string repr_of(std::string_view text);

}  // namespace tessera::io::jinja
