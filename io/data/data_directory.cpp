// SPDX-License-Identifier: Apache-2.0
// Walks a directory and decides by name and first bytes.

#include "io/data/data_directory.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>

#include "io/data/data_kind.hpp"
#include "io/data/rows.hpp"
#include "io/file/compressed.hpp"
#include "io/file/file.hpp"

namespace tessera::io {

namespace {

namespace fs = std::filesystem;

std::string small_letters(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// The name without the ending of a compressed file.
std::string inner_name(const std::string& name) {
  for (const char* packed : {".gz", ".zst"})
    if (small_letters(name).ends_with(packed)) return name.substr(0, name.rfind('.'));
  return name;
}

/// Files that lie beside data and are none.
bool is_about_data(const std::string& name) {
  static const std::set<std::string> stems = {
      "license",   "licence",  "copying",      "notice",   "readme",   "requirements",  "authors",
      "changelog", "citation", "contributing", "security", "_success", "dataset_infos", "dataset_info"};
  return stems.contains(small_letters(fs::path(name).stem().string()));
}

/// "train", "validation", "test" or "": of a name that begins with one of datasets' words for splits.
std::string split_of(const std::string& name) {
  constexpr std::array<std::pair<const char*, const char*>, 9> words = {{{"training", "train"},
                                                                         {"train", "train"},
                                                                         {"validation", "validation"},
                                                                         {"valid", "validation"},
                                                                         {"val", "validation"},
                                                                         {"dev", "validation"},
                                                                         {"eval", "validation"},
                                                                         {"testing", "test"},
                                                                         {"test", "test"}}};
  const std::string small = small_letters(name);
  for (const auto& [word, split] : words) {
    if (!small.starts_with(word)) continue;
    const std::string rest = small.substr(std::string_view(word).size());
    if (rest.empty() || std::string_view("-_.0123456789").find(rest[0]) != std::string_view::npos) return split;
  }
  return "";
}

/// The first bytes of a file, decompressed; those of one that cannot be read are none.
std::string head_of(const std::string& path) {
  constexpr std::size_t few = 4096, most = std::size_t{1} << 20;
  try {
    const File file = File::open_to_read(path);
    std::string bytes;
    for (const std::size_t wanted : {few, most}) {
      bytes.resize(std::min<std::size_t>(wanted, file.size()));
      file.read_at(0, std::as_writable_bytes(std::span(bytes)));
      if (compression_of(bytes) != Compression::none) return decompressed_head(path, most);
      const std::size_t first = bytes.find_first_not_of("\xEF\xBB\xBF \t\r\n");
      if (first == bytes.npos || (bytes[first] != '{' && bytes[first] != '[')) break;  // no rows
    }
    return bytes;
  } catch (const Error&) {
    return "";  // reading the file will say why, if it is named
  }
}

bool has_rows(const std::string& path, std::string_view head) {
  try {
    const ColumnNames none{[](const auto&) { return false; }, [](const auto&) { return false; }};
    return row_format(path, head, none).layout != RowLayout::none;
  } catch (const Error&) {
    return true;  // the head of an array has no end
  }
}

class DirectoryReader {
 public:
  DirectoryReader(const std::string& directory, std::vector<LeftOut>& left_out)
      : top_(directory), left_out_(left_out) {}

  std::vector<std::string> files() {
    walk(top_);
    std::vector<std::string> found = rows_;
    if (rows_.empty()) {
      refuse_tables_alone();
      found = texts_;
    } else {
      for (const std::string& text : texts_)
        leave_out(text, "plain text beside rows or tokens; to have it read, name it");
    }
    if (found.empty()) throw nothing();
    std::sort(found.begin(), found.end());
    refuse_splits(found);
    return found;
  }

 private:
  void leave_out(const std::string& path, const std::string& why, bool may_be_data = true) {
    left_out_.push_back({path, why, may_be_data});
  }

  void walk(const fs::path& directory) {
    std::error_code error;
    std::vector<fs::path> entries;
    for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
      entries.push_back(entry->path());
    if (error) throw Error(ExitCode::data, "the directory cannot be read: " + error.message(), directory.string());
    std::sort(entries.begin(), entries.end());
    refuse_saved(directory, entries);
    visited_.insert(fs::canonical(directory, error).string());
    for (const fs::path& entry : entries) visit(entry);
  }

  void visit(const fs::path& path) {
    std::error_code error;
    const std::string name = path.filename().string();
    const fs::file_status status = fs::status(path, error);
    if (name.starts_with('.')) return leave_out(path.string(), "hidden", false);
    if (!fs::exists(status)) return leave_out(path.string(), "a link to nothing");
    const std::string real = fs::canonical(path, error).string();
    if (fs::is_directory(status)) {
      if (visited_.contains(real)) return leave_out(path.string(), "a link to " + real + ", which is read already");
      return walk(path);
    }
    if (!fs::is_regular_file(status)) return leave_out(path.string(), "neither a file nor a directory");
    if (belongs_to_tokens(path.string())) return;
    const auto [other, is_new] = seen_.emplace(real, path.string());
    if (!is_new) return leave_out(path.string(), "the same file as " + other->second);
    classify(path.string(), name);
  }

  /// .documents, .loss and .report beside a token file, and Megatron's .idx, are read with it.
  static bool belongs_to_tokens(const std::string& path) {
    for (const std::string ending : {".documents", ".loss", ".report"})
      if (path.ends_with(".bin" + ending)) return exists(path.substr(0, path.size() - ending.size()));
    return path.ends_with(".idx") && exists(path.substr(0, path.size() - 4) + ".bin");
  }

  void classify(const std::string& path, const std::string& name) {
    if (is_about_data(name)) return leave_out(path, "by its name not data", false);
    const std::string kind = data_kind(name);
    if (kind != "text") return rows_.push_back(path);
    const std::string inner = inner_name(name), ending = small_letters(fs::path(inner).extension().string());
    const std::string head = head_of(path);
    if (const char* unsupported = unsupported_kind(path, head)) {
      columnar_ = columnar_ || ending == ".parquet" || ending == ".arrow";
      return leave_out(path, std::string(unsupported) + ", which cannot be read");
    }
    if (!ending.empty() && ending != ".txt")
      return leave_out(path, "its name does not end in .jsonl, .ndjson, .json, .csv, .tsv, .txt or .bin (.gz, .zst)");
    if (has_rows(path, head)) return rows_.push_back(path);
    if (ending.empty()) return leave_out(path, "no rows, and no .txt; to have it read as text, name it");
    texts_.push_back(path);
  }

  /// Throws for what datasets' save_to_disk has written.
  static void refuse_saved(const fs::path& directory, const std::vector<fs::path>& entries) {
    std::set<std::string> names;
    for (const fs::path& entry : entries) names.insert(entry.filename().string());
    const bool splits = names.contains("dataset_dict.json");
    if (!splits && !(names.contains("state.json") && names.contains("dataset_info.json"))) return;
    const std::string path = directory.string();
    throw Error(ExitCode::data, path + " was written by datasets' save_to_disk (Arrow), which cannot be read", {},
                "Make JSON Lines of it: python3 -c 'from datasets import load_from_disk; load_from_disk(\"" + path +
                    "\")" + (splits ? "[\"train\"]" : "") + ".to_json(\"train.jsonl\")'");
  }

  void refuse_tables_alone() const {
    if (!columnar_) return;
    throw Error(ExitCode::data, "the rows of " + top_ + " are in Parquet or Arrow files, which cannot be read", {},
                "Make JSON Lines of them: python3 -c 'from datasets import load_dataset; load_dataset(\"" + top_ +
                    "\", split=\"train\").to_json(\"train.jsonl\")'");
  }

  [[nodiscard]] Error nothing() const {
    std::string why;
    constexpr std::size_t most = 3;
    for (std::size_t i = 0; i < std::min(left_out_.size(), most); ++i)
      why += (why.empty() ? "" : "; ") + left_out_[i].path + ": " + left_out_[i].why;
    return Error(ExitCode::data,
                 "the directory has no .jsonl, .ndjson, .json, .csv, .tsv, .txt or .bin file" +
                     (why.empty() ? why : " (" + why + ")"),
                 top_, "Name the files, or a pattern that matches them");
  }

  void refuse_splits(const std::vector<std::string>& found) const {
    std::map<std::string, std::string> first_of;  // a file of each split
    for (const std::string& path : found) {
      std::string split;
      for (const fs::path& part : fs::path(path).lexically_relative(top_))
        if (std::string own = split_of(part.string()); !own.empty()) split = std::move(own);
      if (!split.empty()) first_of.emplace(split, path);
    }
    if (first_of.size() < 2) return;
    std::string splits;
    for (const auto& [split, path] : first_of) splits += (splits.empty() ? "" : ", ") + split + " (" + path + ")";
    throw Error(ExitCode::data, "the directory has files of several splits: " + splits, top_,
                "Name the files or the directory of one, or a pattern: '" + top_ + "/train*'");
  }

  std::string top_;
  std::vector<LeftOut>& left_out_;
  std::set<std::string> visited_;            // directories, without links
  std::map<std::string, std::string> seen_;  // files, without links, and how they were named
  std::vector<std::string> rows_, texts_;    // rows and tokens
  bool columnar_ = false;                    // Parquet or Arrow files are left out
};

}  // namespace

std::vector<std::string> files_in(const std::string& directory, std::vector<LeftOut>& left_out) {
  return DirectoryReader(directory, left_out).files();
}

}  // namespace tessera::io
