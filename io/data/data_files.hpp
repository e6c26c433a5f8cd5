// SPDX-License-Identifier: Apache-2.0
#pragma once
// The files that --dataset names: paths, directories and patterns, each with an optional number or share of rows.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::io {

/// A file, and how many of its rows are used; of token files, how many samples or documents.
struct DataFile {
  std::string path;
  std::optional<std::int64_t> rows;  // "FILE#500"
  std::optional<double> share;       // "FILE:0.3": of its rows; above 1 rows are repeated
  [[nodiscard]] bool selects() const { return rows.has_value() || share.has_value(); }
  /// Of `all` rows.
  [[nodiscard]] std::int64_t wanted(std::int64_t all) const;
};

/// How often row `index` of `all` is used, where `wanted` rows are: the same number for each, and one more for the
/// rest, which are chosen at random.
[[nodiscard]] std::int64_t copies_of(std::int64_t index, std::int64_t all, std::int64_t wanted, std::uint64_t seed);

/// The files of NAME[#ROWS] and NAME[:SHARE], in order. A directory stands for its .jsonl, .json, .txt and .bin files,
/// those of subdirectories included, by name; hidden ones are left out. A pattern (*, ?, [) stands for the files that
/// match, by name. Megatron's PREFIX and PREFIX.idx stand for PREFIX.bin; PREFIX.idx beside one of the others adds
/// nothing. A file that exists under the whole name is that file. Throws Error (data): a directory or pattern without a
/// file, a number of rows or share that is not positive, PREFIX.bin and PREFIX.idx with different ones.
[[nodiscard]] std::vector<DataFile> data_files(const std::vector<std::string>& names);

/// NAME of NAME, NAME#ROWS and NAME:SHARE. Throws as data_files.
[[nodiscard]] std::string without_selection(const std::string& name);

}  // namespace tessera::io
