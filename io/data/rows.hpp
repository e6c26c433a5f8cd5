// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files of rows: JSON Lines, one object a line; one array of objects; or a table with a header (table.hpp).

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/row_report.hpp"
#include "io/data/table.hpp"
#include "runtime/base/error.hpp"

namespace tessera::io {

/// none: a text without rows. lines: one a line, blank lines are skipped. array: the elements of a JSON array. table:
/// the records behind a header.
enum class RowLayout : unsigned char { none, lines, array, table };
/// How a file's rows are written.
struct RowFormat {
  RowFormat(RowLayout of = RowLayout::none) : layout(of) {}  // NOLINT(google-explicit-constructor)
  explicit RowFormat(Table of) : layout(RowLayout::table), table(std::make_shared<const Table>(std::move(of))) {}
  RowLayout layout;
  std::shared_ptr<const Table> table;  // of layout table
};
/// Of a whole file, by its content. array: the first characters are [ and {. lines: of the first lines that are not
/// blank, half or more are JSON objects. table: find_table. Where the content says neither, a name that ends in .json
/// or .jsonl stands for rows too (array if the first character is [, else lines): none of them can be used, and each
/// says why. Throws Error (data): an array whose last character is not ]; a name that ends in .csv or .tsv, and a
/// header whose names are not known.
[[nodiscard]] RowFormat row_format(const std::string& path, std::string_view bytes, const ColumnNames& names);
/// "jsonl", "json", "csv" or "text".
[[nodiscard]] const char* name_of(RowLayout layout);

/// A row's text, not yet parsed, and where it begins in the bytes that were read.
struct Row {
  std::string_view text;
  std::size_t offset = 0;
};

/// Where the first row can begin: behind a byte-order mark, the [ of an array, or a table's header; of a text, behind a
/// byte-order mark.
[[nodiscard]] std::size_t rows_begin(std::string_view file, const RowFormat& format);
/// Calls `row` for each row of `bytes`, which begin where a row can. Text behind the ] of an array is a row, too.
/// Throws Error (data) as record_end.
void for_each_row(std::string_view bytes, const RowFormat& format, const std::function<void(const Row&)>& row);
/// The end of the first rows of `bytes` that have `least` bytes together; all of `bytes` if they are fewer. Throws
/// Error (data) as record_end.
[[nodiscard]] std::size_t rows_end(std::string_view bytes, const RowFormat& format, std::size_t least);

/// Why a row cannot be used. Caught where its file and line are known.
struct RowError {
  std::string why;
  std::string what_to_do = "Correct the row, or give --strict false to skip such rows";  // where rows must be usable
  std::string literal = {};  // what a Python literal is in the place of: "the row", "\"messages\""
};
/// The error of a Python literal where JSON is expected; `what`: RowError::literal.
[[nodiscard]] RowError literal_error(const std::string& what);
/// True if a text is a list or dict as Python's str() writes it: in brackets, with a string in single quotes, or True,
/// False or None outside of strings.
[[nodiscard]] bool is_python_literal(std::string_view text);

/// The object in a row. Bytes that are not UTF-8 and lone surrogates become U+FFFD; NaN and Infinity become null; each
/// such place adds 1 to `repaired`. Integers keep their digits (row_json.hpp). Throws RowError: not JSON (with the
/// column), not an object; in any object a key twice, or more than 10,000 keys; deeper than 64 levels.
[[nodiscard]] nlohmann::ordered_json parse_row(std::string_view text, std::int64_t& repaired);
/// Of a row that parse_row reads: an object with those of its keys whose values are NaN or Infinity.
[[nodiscard]] nlohmann::ordered_json lost_numbers(std::string_view text);
/// The object in a row of this format. Throws RowError, as parse_row and parse_record.
[[nodiscard]] nlohmann::ordered_json read_row(std::string_view text, const RowFormat& format, std::int64_t& repaired);
/// Throws RowError: the row has "images", "videos" or "audios" (or one "image", …) that are not empty.
void require_text_alone(const nlohmann::ordered_json& row);
/// The keys of a row, except those in `read`, whose value is neither null nor an empty string, array or object.
[[nodiscard]] std::vector<std::string> keys_with_values(const nlohmann::ordered_json& row,
                                                        std::initializer_list<std::string_view> read);
/// Its string under "text". Throws RowError, also as require_text_alone.
[[nodiscard]] std::string text_of_row(const nlohmann::ordered_json& row);
/// "path:line" of byte `offset` of a file; lines count from 1.
[[nodiscard]] std::string line_name(const std::string& path, std::string_view file, std::size_t offset);
/// The error of a row where rows must all be usable (--strict).
[[nodiscard]] Error strict_error(const RowError& error, const std::string& where);
/// The error of a file without a usable row; `error`: of its first row, if it has one.
[[nodiscard]] Error no_row_error(const std::string& path, const std::string& first_why);

/// The error of a row with keys that are not read (--strict).
[[nodiscard]] RowError unread_error(const std::vector<std::string>& keys);

/// Lone surrogates, NaN and Infinity among the `repaired` places of a row: those that are UTF-8. Throws RowError if
/// there are some and none may be (--strict).
[[nodiscard]] std::int64_t replaced_places(std::string_view row, std::int64_t repaired, bool strict);

}  // namespace tessera::io
