// SPDX-License-Identifier: Apache-2.0
// Splits records and fields, and finds the separator by the header.

#include "io/data/table.hpp"

#include <algorithm>
#include <set>

#include "io/data/rows.hpp"
#include "io/tokenizer/utf8.hpp"

namespace tessera::io {

namespace {

constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
constexpr std::string_view known_separators = ",;\t";

Error quote_error(std::string_view text, std::size_t at, const Table& table, const char* what) {
  const auto offset = static_cast<std::size_t>(text.data() + at - table.file.data());
  return Error(
      ExitCode::data, std::string(what) + ": from here on records cannot be told apart",
      line_name(table.path, table.file, offset),
      "Write fields with separators, quotes or line breaks as RFC 4180 says: \"in quotes, with \"\" for a quote\"");
}

/// Finds the end of the field at `at`; its content only where `content` is not null. A quote inside of a field that
/// does not begin with one stands for itself.
std::size_t end_of_field(std::string_view text, std::size_t at, const Table& table, std::string* content) {
  if (at >= text.size() || text[at] != '"') {
    const char ends[] = {table.separator, '\n'};
    std::size_t end = std::min(text.find_first_of(std::string_view(ends, 2), at), text.size());
    if (content != nullptr) {
      std::string_view value = text.substr(at, end - at);
      if (value.ends_with('\r') && (end == text.size() || text[end] == '\n')) value.remove_suffix(1);
      *content = value;
    }
    return end;
  }
  std::size_t from = at + 1;
  for (;;) {
    const std::size_t quote = text.find('"', from);
    if (quote == text.npos) throw quote_error(text, at, table, "a quoted field has no end");
    if (content != nullptr) content->append(text.substr(from, quote - from));
    from = quote + 1;
    if (from >= text.size() || text[from] != '"') break;
    if (content != nullptr) *content += '"';
    ++from;
  }
  if (text.substr(from).starts_with("\r\n")) ++from;
  if (from < text.size() && text[from] != table.separator && text[from] != '\n' && text.substr(from) != "\r")
    throw quote_error(text, at, table, "a quoted field is followed by other text");
  return text.substr(from) == "\r" ? text.size() : from;
}

/// None: an empty field without quotes, a missing value.
std::vector<std::optional<std::string>> fields_of(std::string_view record, const Table& table) {
  std::vector<std::optional<std::string>> fields;
  std::size_t at = 0;
  for (;;) {
    const bool is_quoted = at < record.size() && record[at] == '"';
    at = end_of_field(record, at, table, &fields.emplace_back().emplace());
    if (!is_quoted && fields.back()->empty()) fields.back().reset();
    if (at >= record.size() || record[at] == '\n') return fields;
    ++at;
  }
}

/// A header's names, without the blanks around them.
std::vector<std::string> names_of(std::string_view header, const Table& table) {
  std::vector<std::string> names;
  for (const std::optional<std::string>& field : fields_of(header, table)) {
    std::string& name = names.emplace_back(field.value_or(""));
    name.erase(0, std::min(name.find_first_not_of(' '), name.size()));
    name.erase(name.find_last_not_of(' ') + 1);
  }
  return names;
}

/// The table by one separator, without a judgement of its names; none where its first record has no end.
std::optional<Table> table_by(char separator, const std::string& path, std::string_view file) {
  Table table{.separator = separator, .path = path, .file = file};
  const std::size_t begin = file.starts_with(byte_order_mark) ? byte_order_mark.size() : 0;
  constexpr std::size_t longest_header = std::size_t{1} << 20;
  try {
    table.first_row = record_end(file.substr(0, longest_header), begin, table);
    table.columns = names_of(file.substr(begin, table.first_row - begin), table);
  } catch (const Error&) { return std::nullopt; }
  return table;
}

/// True if the record behind the header has as many fields.
bool is_regular(std::string_view file, const Table& table) {
  std::size_t at = table.first_row;
  while (at < file.size() && (file[at] == '\n' || file[at] == '\r')) ++at;
  if (at >= file.size()) return false;
  try {
    return fields_of(file.substr(at, record_end(file, at, table) - at), table).size() == table.columns.size();
  } catch (const Error&) { return false; }
}

}  // namespace

std::optional<Table> find_table(const std::string& path, std::string_view file, const ColumnNames& names, bool named) {
  for (const char separator : known_separators) {
    std::optional<Table> table = table_by(separator, path, file);
    if (!table || !names.usable(table->columns)) continue;
    if (!named && (table->columns.size() < 2 || !is_regular(file, *table))) continue;
    std::set<std::string> seen;
    for (const std::string& name : table->columns) {
      if (!seen.insert(name).second)
        throw Error(ExitCode::data, "the header names the column \"" + name + "\" twice", path + ":1",
                    "Give each column a name of its own");
      table->is_json.push_back(names.is_json(name) ? 1 : 0);
    }
    return table;
  }
  return std::nullopt;
}

std::string header_names(std::string_view file) {
  std::vector<std::string> most;
  for (const char separator : known_separators) {
    const std::optional<Table> table = table_by(separator, "", file);
    if (table && table->columns.size() > most.size()) most = table->columns;
  }
  constexpr std::size_t most_shown = 20, longest = 40;
  std::string text;
  for (std::size_t i = 0; i < std::min(most.size(), most_shown); ++i) text += " \"" + most[i].substr(0, longest) + "\"";
  return text;
}

std::size_t record_end(std::string_view text, std::size_t at, const Table& table) {
  for (;;) {
    at = end_of_field(text, at, table, nullptr);
    if (at >= text.size()) return text.size();
    if (text[at++] == '\n') return at;
  }
}

nlohmann::ordered_json parse_record(std::string_view record, const Table& table, std::int64_t& repaired) {
  if (record.find('\0') != record.npos) throw RowError{"a zero byte in the record: this is not text"};
  std::vector<std::optional<std::string>> fields = fields_of(record, table);
  if (fields.size() != table.columns.size())
    throw RowError{strfmt("the record has %zu fields, the header %zu", fields.size(), table.columns.size())};
  if (std::ranges::all_of(fields, [](const auto& field) { return field.value_or("").empty(); }))
    throw RowError{"all fields of the record are empty"};
  nlohmann::ordered_json row = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < fields.size(); ++i) {
    nlohmann::ordered_json& value = row[table.columns[i]];
    if (!fields[i]) continue;  // null
    std::string& field = *fields[i];
    if (table.is_json[i] != 0) {
      if (field.empty()) continue;
      try {
        nlohmann::ordered_json wrapped = parse_row("{\"value\":" + field + "}", repaired);
        if (wrapped.size() != 1) throw RowError{};
        value = std::move(wrapped["value"]);
      } catch (const RowError&) {
        if (is_python_literal(field)) throw literal_error("\"" + table.columns[i] + "\"");
        throw RowError{"\"" + table.columns[i] + "\" is not JSON: write lists of messages by json.dumps"};
      }
      continue;
    }
    if (const std::int64_t invalid = utf8::census(field).invalid; invalid > 0) {
      repaired += invalid;
      field = utf8::repaired(field);
    }
    value = std::move(field);
  }
  return row;
}

}  // namespace tessera::io
