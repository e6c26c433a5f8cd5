// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tables: files of records as RFC 4180 describes them (CSV), with a header, separated by commas, semicolons or tabs.

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::io {

/// What the names in a header mean.
struct ColumnNames {
  /// True if rows with these keys have a known form.
  std::function<bool(const std::vector<std::string>&)> usable;
  /// True if the values of this column are JSON: a list of messages.
  std::function<bool(const std::string&)> is_json;
};

/// A table's separator and header.
struct Table {
  char separator = ',';
  std::vector<std::string> columns;
  std::vector<char> is_json;  // of each column
  std::string path;
  std::string_view file;      // the whole file, for line numbers; mapped as long as the table is read
  std::size_t first_row = 0;  // where the first record begins
};

/// The table in a file, if the first record is a header whose names are usable, split at the one separator for which
/// they are. Unless it is `named` as a table, two columns and a second record of as many are needed too. A byte-order
/// mark is skipped. Throws Error (data): a name twice; quotes as record_end.
[[nodiscard]] std::optional<Table> find_table(const std::string& path, std::string_view file, const ColumnNames& names,
                                              bool named);
/// The names in the header, split at the separator that gives most, for a message.
[[nodiscard]] std::string header_names(std::string_view file);

/// Behind the record that begins at `at` of `text`, a part of the table's file, and behind its line break. Throws Error
/// (data): a quoted field without an end, or with something between its end and the next separator; from there on
/// records cannot be told apart.
[[nodiscard]] std::size_t record_end(std::string_view text, std::size_t at, const Table& table);
/// A record as an object of strings, and of what is parsed from columns of JSON. Null: a field that is empty, without
/// quotes unless the column is JSON. Bytes
/// that are not UTF-8 become U+FFFD, each adds 1 to `repaired`. Throws RowError: another number of fields than the
/// header has, no JSON where JSON is expected, a zero byte.
[[nodiscard]] nlohmann::ordered_json parse_record(std::string_view record, const Table& table, std::int64_t& repaired);

}  // namespace tessera::io
