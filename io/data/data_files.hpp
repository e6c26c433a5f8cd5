// SPDX-License-Identifier: Apache-2.0
#pragma once
// The files that --dataset names: paths, directories and patterns, each with an optional number or share of rows.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/data/data_directory.hpp"

namespace tessera::io {

/// True for "cmd:COMMAND", which stands for what the shell command prints: JSON Lines (command_output.hpp).
[[nodiscard]] bool is_command(const std::string& name);

/// A file, or what a command prints, and how many of its rows are used; of token files, how many samples or documents.
struct DataFile {
  std::string path;                  // or "cmd:COMMAND" with blanks for line ends
  std::optional<std::int64_t> rows;  // "FILE#500"
  std::optional<double> share;       // "FILE:0.3": of its rows; above 1 rows are repeated
  std::string command = {};          // as it was given
  std::string copy = {};             // the file with the content of a compressed file or of a command; else ""
  [[nodiscard]] const std::string& content() const { return copy.empty() ? path : copy; }
  [[nodiscard]] bool selects() const { return rows.has_value() || share.has_value(); }
  /// Of `all` rows.
  [[nodiscard]] std::int64_t wanted(std::int64_t all) const;
};

/// How often row `index` of `all` is used, where `wanted` rows are: the same number for each, and one more for the
/// rest, which are chosen at random.
[[nodiscard]] std::int64_t copies_of(std::int64_t index, std::int64_t all, std::int64_t wanted, std::uint64_t seed);

/// The files of NAME[#ROWS] and NAME[:SHARE], in order. A command is one of them, as it is. A directory stands for its
/// files (data_directory.hpp). A pattern
/// (*, ?, [) stands for the files that match, by name. Megatron's PREFIX and PREFIX.idx stand for PREFIX.bin;
/// PREFIX.idx beside one of the others adds nothing. A file that exists under the whole name is that file. What
/// directories and patterns name and is not read is appended to `left_out`. Throws Error (data): as files_in; a pattern
/// without a file, a number of rows or share that is not positive, PREFIX.bin and PREFIX.idx with different ones.
[[nodiscard]] std::vector<DataFile> data_files(const std::vector<std::string>& names,
                                               std::vector<LeftOut>* left_out = nullptr);
/// True if NAME[#ROWS] or NAME[:SHARE] is a file, a directory or a pattern that matches.
[[nodiscard]] bool names_something(const std::string& name);
/// The names in a list that commas separate. A command goes to the end of the list. A comma belongs to a name where
/// what is on both sides of it is, together, the name of something that exists, or a pattern that matches.
[[nodiscard]] std::vector<std::string> split_names(const std::string& list);

/// NAME of NAME, NAME#ROWS and NAME:SHARE. Throws as data_files.
[[nodiscard]] std::string without_selection(const std::string& name);

}  // namespace tessera::io
