// SPDX-License-Identifier: Apache-2.0
#pragma once
// A directory as a data set: which of its files are read, and which are left out for what reason.

#include <string>
#include <vector>

namespace tessera::io {

/// A file or directory that a name stands for and that is not read.
struct LeftOut {
  std::string path, why;
  bool may_be_data = true;  // false: hidden, or by its name a licence, a description, …
};

/// The files of a directory and of those in it, by name; links are followed, and each file is read once.
/// - Rows: names that end in .jsonl, .ndjson, .json, .csv or .tsv, also compressed (.gz, .zst); names without an
/// ending,
///   and .txt, whose content is rows. Tokens: .bin, with the files beside it that belong to it.
/// - Plain text (.txt), if there are neither rows nor tokens; not a licence or the like.
/// All others are appended to `left_out`. Throws Error (data): no file is read; only Parquet or Arrow files hold rows,
/// or the directory is one of datasets' save_to_disk (with the line that makes JSON Lines); the names of files are of
/// more than one split (train, validation, test).
[[nodiscard]] std::vector<std::string> files_in(const std::string& directory, std::vector<LeftOut>& left_out);

}  // namespace tessera::io
