// SPDX-License-Identifier: Apache-2.0
#pragma once
// What became of the rows of a data set: those that cannot be used, and what nothing reads in the others. Of a token
// file F.bin it is kept in F.bin.report, so that every run on the tokens can say it again.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::io {

struct RowError;  // rows.hpp

/// Keys of rows and messages that nothing reads, and how many rows have each. At most so many are told apart.
struct UnreadKeys {
  static constexpr std::size_t most = 64, longest = 80;
  std::map<std::string, std::int64_t> counts;
  std::int64_t others = 0;  // keys beyond the first ones, each with its rows
  void add(const std::string& key, std::int64_t rows = 1);
};
/// A key as UnreadKeys has it: its first complete characters, UnreadKeys::longest bytes at most.
[[nodiscard]] std::string shortened_key(const std::string& key);

/// Rows that cannot be used: how many, and where and why for the first of them.
struct SkippedRows {
  static constexpr std::size_t most_named = 10;
  std::int64_t count = 0;
  std::vector<std::string> named;  // "file:line: why"
  UnreadKeys unread;               // of rows that are used
  struct Literals {
    std::int64_t rows = 0;
    std::string first;  // "file:line"
  };
  /// Of `count`, rows with a Python literal where JSON is expected, by RowError::literal. They are not in `named`.
  std::map<std::string, Literals> literals;
  void add(const std::function<std::string()>& where, const RowError& error);
  /// Adds those of later rows, without the unread keys.
  void add_skipped(const SkippedRows& later);
  /// Where and why of one of them; there must be one.
  [[nodiscard]] std::string one() const;
};

struct RowReport {
  SkippedRows skipped;
  std::int64_t without_tools = 0;           // conversations with tools, which the chat template does not read
  std::int64_t without_reasoning = 0;       // conversations with reasoning that it leaves out
  std::int64_t without_messages = 0;        // conversations with a message of another role that it leaves out
  std::int64_t files_of_pairs = 0;          // files each of whose rows is two documents, a chosen and a rejected one
  std::int64_t files_of_margins = 0;        // of these, with the margin of each row as a third document
  std::int64_t files_of_labels = 0;         // of these, made for labels: a row may have one answer
  std::int64_t pairs = 0, equal_pairs = 0;  // in them; of which the two documents are the same
  std::int64_t labelled = 0;                // rows of such files that have one answer and a label
  std::int64_t after_think = 0;  // of files made for labels: answers behind an empty think block without loss
  std::vector<std::string> absent_columns;  // keys of --columns that no row has
  /// Adds that of a later file.
  void add(const RowReport& other);
};

/// The skipped rows as JSON, without the unread keys, and back. Throws nlohmann::json::exception: another form.
[[nodiscard]] std::string skipped_text(const SkippedRows& skipped);
[[nodiscard]] SkippedRows parse_skipped(std::string_view text);

/// "F.bin.report".
[[nodiscard]] std::string row_report_name(const std::string& token_file);
/// The text of such a file of `tokens` tokens (docs/formats.md).
[[nodiscard]] std::string row_report_text(const RowReport& report, std::int64_t tokens);
/// Reverses it. Throws Error (data), naming `path`: another form; it is of another number of tokens.
[[nodiscard]] RowReport parse_row_report(std::string_view text, std::int64_t tokens, const std::string& path);

}  // namespace tessera::io
