// SPDX-License-Identifier: Apache-2.0
// Finds rows by scanning for strings and brackets; parses one row at a time.

#include "io/data/rows.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "io/data/data_kind.hpp"
#include "io/data/row_json.hpp"
#include "io/tokenizer/utf8.hpp"
#include "runtime/base/local_work.hpp"

namespace tessera::io {

using Json = nlohmann::ordered_json;

namespace {

constexpr std::string_view white = " \t\r\n";

/// Behind the string that begins at `at` with its quote; the end of `text` if it does not end.
std::size_t string_end(std::string_view text, std::size_t at) {
  for (++at; at < text.size(); ++at) {
    if (text[at] == '\\') ++at;
    else if (text[at] == '"') return at + 1;
  }
  return text.size();
}

/// The comma or bracket behind the array's element that begins at `at`, or the end of `text`.
std::size_t element_end(std::string_view text, std::size_t at) {
  std::size_t depth = 0;
  while (at < text.size()) {
    switch (text[at]) {
      case '"': at = string_end(text, at); continue;
      case '{':
      case '[': ++depth; break;
      case '}':
      case ']':
        if (depth == 0) return at;
        --depth;
        break;
      case ',':
        if (depth == 0) return at;
        break;
      default: break;
    }
    ++at;
  }
  return at;
}

/// Calls row(begin, end) for each element until it returns false; returns where it stopped.
template <class F>
std::size_t for_each_element(std::string_view text, const F& row) {
  std::size_t at = 0;
  while (true) {
    at = std::min(text.find_first_not_of(white, at), text.size());
    if (at == text.size()) return at;
    const std::size_t end = element_end(text, at);
    const bool is_empty = end == at && (end == text.size() || text[end] == ']');
    const bool more = is_empty || row(at, end);
    if (end == text.size()) return end;
    at = end + 1;
    if (!more) return at;
  }
}

/// Behind the ] of the array whose first element begins at `at`; absent if it has none.
std::optional<std::size_t> array_end(std::string_view text, std::size_t at) {
  while ((at = element_end(text, at)) < text.size())
    if (text[at++] == ']') return at;
  return std::nullopt;
}

/// The last character of a file, which begins with [ at `first`, is not ].
Error array_error(const std::string& path, std::string_view file, std::size_t first) {
  const std::optional<std::size_t> end = array_end(file, first + 1);
  if (!end)
    return Error(ExitCode::data, path + ": the JSON array has no end: the file was cut short", {},
                 "Write the file again, with \"]\" at its end");
  const std::size_t at = file.find_first_not_of(white, *end), line = file.rfind('\n', at) + 1;
  const std::string_view rest = file.substr(at);
  return Error(ExitCode::data,
               strfmt("the JSON array ends, and at column %zu other text follows: \"", at - line + 1) +
                   shortened_key(std::string(rest.substr(0, rest.find('\n')))) + "\"",
               line_name(path, file, at), "Remove it, or put its rows into the array");
}

/// True if half or more of the first lines that are not blank are JSON objects, by their brackets.
bool has_object_lines(std::string_view text) {
  constexpr int most = 16;
  constexpr std::size_t longest = std::size_t{64} << 20;
  text = text.substr(0, longest);
  int lines = 0, objects = 0;
  for (std::size_t at = 0; at < text.size() && lines < most;) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (line.find_first_not_of(white) == line.npos) continue;
    ++lines;
    line = line.substr(line.find_first_not_of(white), line.find_last_not_of(white) - line.find_first_not_of(white) + 1);
    const std::size_t inside = line.find_first_not_of(white, 1);
    if (line.size() < 2 || line.front() != '{' || (line[inside] != '"' && line[inside] != '}')) continue;
    if (element_end(line, 0) == line.size() && line.back() == '}') ++objects;
  }
  return objects > 0 && 2 * objects >= lines;
}

class Repair {
 public:
  /// `number`: what NaN and Infinity become.
  explicit Repair(std::string_view text, const char* number = "null") : text_(text), number_(number) {}

  std::string made() {
    while (at_ < text_.size()) {
      if (text_[at_] == '"') in_string_ = !in_string_;
      if (in_string_ && text_[at_] == '\\') escape();
      else if (in_string_ && static_cast<unsigned char>(text_[at_]) >= 0x80) character();
      else if (in_string_ || !word()) out_ += text_[at_++];
    }
    return std::move(out_);
  }
  [[nodiscard]] std::int64_t places() const { return places_; }

 private:
  /// A code unit of \uNNNN at `at`, or -1.
  [[nodiscard]] int unit(std::size_t at) const {
    if (at + 6 > text_.size() || text_[at] != '\\' || text_[at + 1] != 'u') return -1;
    int code = 0;
    for (const char c : text_.substr(at + 2, 4)) {
      const std::size_t digit = std::string_view("0123456789abcdef").find(static_cast<char>(c | 0x20));
      const bool is_digit = c >= '0' && c <= '9';
      if (digit == std::string_view::npos || (digit < 10 && !is_digit)) return -1;
      code = code * 16 + static_cast<int>(digit);
    }
    return code;
  }
  void copy(std::size_t count) {
    count = std::min(count, text_.size() - at_);
    out_ += text_.substr(at_, count);
    at_ += count;
  }
  void escape() {
    const int first = unit(at_);
    if (first < 0xD800 || first > 0xDFFF) return copy(first < 0 ? 2 : 6);
    const int second = first < 0xDC00 ? unit(at_ + 6) : -1;
    if (second >= 0xDC00 && second <= 0xDFFF) return copy(12);
    out_ += "\\ufffd";
    at_ += 6;
    ++places_;
  }
  void character() {
    const utf8::Step step = utf8::step(text_.substr(at_));
    if (step.valid) return copy(static_cast<std::size_t>(step.length));
    utf8::append(out_, 0xFFFD);
    at_ += static_cast<std::size_t>(step.length);
    ++places_;
  }
  bool word() {
    for (const std::string_view name : {"NaN", "Infinity", "-Infinity"}) {
      if (!text_.substr(at_).starts_with(name)) continue;
      out_ += number_;
      at_ += name.size();
      ++places_;
      return true;
    }
    return false;
  }

  std::string_view text_;
  const char* number_;
  std::string out_;
  std::size_t at_ = 0;
  bool in_string_ = false;
  std::int64_t places_ = 0;
};

Json parse(std::string_view text) {
  Json row = parse_row_json(text);
  if (!row.is_object()) throw RowError{"the row is not a JSON object"};
  return row;
}

}  // namespace

RowFormat row_format(const std::string& path, std::string_view bytes, const ColumnNames& names) {
  const std::string_view text = bytes.substr(rows_begin(bytes, RowLayout::none));
  const std::string kind = data_kind(path);
  const bool named = kind == "jsonl" || kind == "json";
  const std::size_t first = std::min(text.find_first_not_of(white), text.size());
  const std::size_t second = text.find_first_not_of(white, first + 1);
  const bool bracket = text.substr(first).starts_with('[');
  if (bracket && (kind == "json" || (second != text.npos && text[second] == '{'))) {
    const std::size_t last = text.find_last_not_of(white), before = text.substr(0, last).find_last_not_of(white);
    if (text[last] != ']') throw array_error(path, bytes, bytes.size() - text.size() + first);
    if (last > 0 && text[before] == ',')
      throw Error(ExitCode::data, path + ": the JSON array ends with a comma", {},
                  "Remove the comma before \"]\", if all rows are there");
    return RowLayout::array;
  }
  if (has_object_lines(text)) return RowLayout::lines;
  if (std::optional<Table> table = find_table(path, bytes, names, kind == "csv")) return RowFormat(std::move(*table));
  if (kind == "csv" && first < text.size())
    throw Error(ExitCode::data, path + " is no table of a known form; its columns:" + header_names(bytes), {},
                "Name columns as docs/data.md says, in the header or by --columns '{\"from\": \"to\"}'");
  return named ? RowLayout::lines : RowLayout::none;
}

const char* name_of(RowLayout layout) {
  constexpr std::array names = {"text", "jsonl", "json", "csv"};
  return names[static_cast<std::size_t>(layout)];
}

std::size_t rows_begin(std::string_view file, const RowFormat& format) {
  if (format.layout == RowLayout::table) return format.table->first_row;
  const std::size_t at = file.starts_with("\xEF\xBB\xBF") ? 3 : 0;
  return format.layout == RowLayout::array ? file.find('[', at) + 1 : at;
}

void for_each_row(std::string_view bytes, const RowFormat& format, const std::function<void(const Row&)>& row) {
  if (format.layout == RowLayout::array) {
    for_each_element(bytes, [&](std::size_t begin, std::size_t end) {
      row({bytes.substr(begin, end - begin), begin});
      note_local_work();
      return true;
    });
    return;
  }
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t behind = format.layout == RowLayout::table ? record_end(bytes, at, *format.table)
                                                                 : std::min(bytes.find('\n', at), bytes.size() - 1) + 1;
    const std::string_view line = bytes.substr(at, behind - at);
    if (line.find_first_not_of(white) != line.npos)
      row({line.substr(0, line.size() - (line.ends_with('\n') ? 1 : 0)), at});
    note_local_work();
    at = behind;
  }
}

std::size_t rows_end(std::string_view bytes, const RowFormat& format, std::size_t least) {
  if (format.layout == RowLayout::array)
    return for_each_element(bytes, [&](std::size_t, std::size_t end) { return end + 1 < least; });
  if (format.layout == RowLayout::table) {
    std::size_t at = 0;
    while (at < bytes.size() && at < least) at = record_end(bytes, at, *format.table);
    return at;
  }
  const std::size_t newline = least > 0 ? bytes.find('\n', least - 1) : 0;
  return newline == bytes.npos ? bytes.size() : newline + 1;
}

Json read_row(std::string_view text, const RowFormat& format, std::int64_t& repaired) {
  return format.layout == RowLayout::table ? parse_record(text, *format.table, repaired) : parse_row(text, repaired);
}

Json parse_row(std::string_view text, std::int64_t& repaired) {
  if (text.find('\0') != text.npos) throw RowError{"a zero byte in the row: this is not text"};
  try {
    return parse(text);
  } catch (const nlohmann::json::exception&) {  // not JSON as it stands
  }
  Repair repair(text);
  const std::string other = repair.made();
  try {
    Json row = parse(other);
    repaired += repair.places();
    return row;
  } catch (const nlohmann::json::parse_error& error) {
    if (is_python_literal(text)) throw literal_error("the row");
    throw RowError{strfmt("the row is not JSON at column %zu", error.byte)};
  } catch (const nlohmann::json::exception&) { throw RowError{"the row has a number beyond the range of doubles"}; }
}

Json lost_numbers(std::string_view text) {
  const Json made = parse(Repair(text).made()), marked = parse(Repair(text, "\"\"").made());
  Json lost = Json::object();
  for (const auto& [key, value] : made.items())
    if (value.is_null() && marked.at(key).is_string()) append_key(lost, key, nullptr);
  return lost;
}

RowError literal_error(const std::string& what) {
  return {.why = what + " is a Python literal, not JSON: write it by json.dumps(...), not by str(...)",
          .literal = what};
}

bool is_python_literal(std::string_view text) {
  const std::size_t first = text.find_first_not_of(white);
  if (first == text.npos || (text[first] != '[' && text[first] != '{')) return false;
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", begins = "[{,:(";
  char before = text[first];  // the last character that is not white
  for (std::size_t at = first + 1; at < text.size();) {
    const char c = text[at];
    const bool is_value = begins.find(before) != begins.npos;  // or a key
    if (c == '\'' && is_value) return true;
    const std::size_t end =
        c == '"' ? string_end(text, at) : std::min(text.find_first_not_of(letters, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    const std::size_t behind = text.find_first_not_of(white, end);
    const bool is_last = behind == text.npos || std::string_view(",]}):").find(text[behind]) != text.npos;
    if (is_value && is_last && (word == "True" || word == "False" || word == "None")) return true;
    if (white.find(c) == white.npos) before = c;
    at = std::max(end, at + 1);
  }
  return false;
}

std::int64_t replaced_places(std::string_view row, std::int64_t repaired, bool strict) {
  if (repaired == 0) return 0;
  const std::int64_t replaced = repaired - utf8::census(row).invalid;
  if (strict && replaced > 0) throw RowError{"the row has lone surrogates, NaN or Infinity, which are not JSON"};
  return replaced;
}

void require_text_alone(const Json& row) {
  for (const char* key : {"images", "image", "videos", "video", "audios", "audio"}) {
    const auto found = row.find(key);
    if (found == row.end() || found->is_null() || found->empty()) continue;
    if (found->is_string() && found->get_ref<const std::string&>().empty()) continue;
    throw RowError{std::string("the row has \"") + key + "\", and models here read text alone"};
  }
}

std::vector<std::string> keys_with_values(const Json& row, std::initializer_list<std::string_view> read) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : row.items()) {
    const bool is_empty = value.is_null() || (value.is_structured() && value.empty()) ||
                          (value.is_string() && value.get_ref<const std::string&>().empty());
    if (!is_empty && std::find(read.begin(), read.end(), key) == read.end()) keys.push_back(key);
  }
  return keys;
}

std::string text_of_row(const Json& row) {
  require_text_alone(row);
  const auto found = row.find("text");
  if (found == row.end()) throw RowError{"the object has no \"text\""};
  if (!found->is_string()) throw RowError{"\"text\" is not a string"};
  return found->get<std::string>();
}

std::string line_name(const std::string& path, std::string_view file, std::size_t offset) {
  const std::string_view before = file.substr(0, offset);
  return path + ":" + std::to_string(std::count(before.begin(), before.end(), '\n') + 1);
}

Error strict_error(const RowError& error, const std::string& where) {
  return Error(ExitCode::data, error.why, where, error.what_to_do);
}

Error no_row_error(const std::string& path, const std::string& first_why) {
  return Error(ExitCode::data, path + " has no document" + (first_why.empty() ? "" : " that can be used"), first_why,
               "Each row is an object with a string under \"text\", or a conversation (docs/data.md)");
}

RowError unread_error(const std::vector<std::string>& keys) {
  std::string named;
  for (std::size_t i = 0; i < std::min(keys.size(), SkippedRows::most_named); ++i)
    named += (i > 0 ? ", \"" : "\"") + shortened_key(keys[i]) + "\"";
  return {"the row has keys that are not read: " + named,
          "Leave columns out with --columns '{\"KEY\": \"unused\"}', or give --strict false to use such rows"};
}

}  // namespace tessera::io
