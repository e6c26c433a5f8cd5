// SPDX-License-Identifier: Apache-2.0
// File name endings and magic numbers.

#include "io/data/data_kind.hpp"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "io/data/data_files.hpp"
#include "io/file/link_text.hpp"

namespace tessera::io {

namespace {

bool has_suffix(const std::string& path, std::string_view suffix) {
  if (path.size() < suffix.size()) return false;
  return std::equal(suffix.begin(), suffix.end(), path.end() - static_cast<std::ptrdiff_t>(suffix.size()),
                    [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); });
}

constexpr const char* link_as_text = "the path of a symbolic link, copied or checked out as a text";

struct UnsupportedKind {
  const char* name;
  std::vector<std::string_view> suffixes, magics;
  std::string to_do;
};

/// `to_do` has "FILE" where the file's name stands.
const std::vector<UnsupportedKind>& unsupported_kinds() {
  static const std::string rows = "Write its rows as JSON Lines, one {\"text\": …} or {\"messages\": [...]} a line",
                           unpack = "Unpack it first",
                           utf8 = "Convert it to UTF-8: iconv -f UTF-16 -t UTF-8 FILE > NEW";
  static const std::vector<UnsupportedKind> kinds = {
      {"a Parquet file",
       {".parquet"},
       {"PAR1"},
       "Make JSON Lines of it: python3 -c 'from datasets import load_dataset; load_dataset(\"parquet\", "
       "data_files=\"FILE\", split=\"train\").to_json(\"train.jsonl\")'"},
      {"an Arrow file",
       {".arrow", ".feather"},
       {"ARROW1", "\xff\xff\xff\xff"},
       "Make JSON Lines of it: python3 -c 'from datasets import Dataset; "
       "Dataset.from_file(\"FILE\").to_json(\"train.jsonl\")'"},
      {"a git-lfs pointer, not the file itself", {}, {"version https://git-lfs"}, "Fetch the file: git lfs pull"},
      {link_as_text, {}, {}, "Put the file itself there: cp -L, or git config core.symlinks true before a checkout"},
      {"xz-compressed",
       {".xz"},
       {"\xfd"
        "7zXZ"},
       unpack},
      {"bzip2-compressed", {".bz2"}, {"BZh91AY&SY"}, unpack},
      {"a zip archive", {".zip"}, {"PK\x03\x04"}, unpack},
      {"a 7z archive", {".7z"}, {"7z\xbc\xaf"}, unpack},
      {"a tar archive", {".tar", ".tgz", ".tar.gz", ".tar.zst"}, {}, unpack},
      {"an HDF5 file", {".h5", ".hdf5"}, {"\x89HDF"}, rows},
      {"a numpy file", {".npy"}, {"\x93NUMPY"}, rows},
      {"a PDF file", {".pdf"}, {"%PDF-"}, "Write its text as UTF-8, or as JSON Lines with \"text\""},
      {"an SQLite file", {}, {"SQLite format 3"}, rows},
      {"UTF-16 text", {}, {"\xff\xfe", "\xfe\xff"}, utf8},
      {"gzip-compressed", {}, {"\x1f\x8b"}, "It is decompressed once: a file in it that is compressed again is not"},
      {"zstd-compressed",
       {},
       {"\x28\xb5\x2f\xfd"},
       "It is decompressed once: a file in it that is compressed again is not"},
  };
  return kinds;
}

bool is_tar(std::string_view bytes) {
  constexpr std::size_t magic_at = 257;
  return bytes.size() > magic_at && bytes.substr(magic_at).starts_with("ustar");
}

}  // namespace

std::string data_kind(const std::string& path) {
  if (is_command(path)) return "jsonl";
  for (const std::string_view packed : {".gz", ".zst"}) {
    if (!has_suffix(path, packed)) continue;
    const std::string inner = data_kind(path.substr(0, path.size() - packed.size()));
    return inner == "bin" ? "text" : inner;
  }
  constexpr std::pair<const char*, const char*> endings[] = {
      {".jsonl", "jsonl"}, {".ndjson", "jsonl"}, {".json", "json"}, {".csv", "csv"}, {".tsv", "csv"}, {".bin", "bin"}};
  for (const auto& [ending, kind] : endings)
    if (has_suffix(path, ending)) return kind;
  return "text";
}

const char* unsupported_kind(const std::string& path, std::string_view bytes) {
  for (const UnsupportedKind& kind : unsupported_kinds()) {
    const bool named = std::ranges::any_of(kind.suffixes, [&](auto suffix) { return has_suffix(path, suffix); });
    if (named || std::ranges::any_of(kind.magics, [&](auto magic) { return bytes.starts_with(magic); }))
      return kind.name;
  }
  if (is_link_text(path, bytes)) return link_as_text;
  return is_tar(bytes) ? "a tar archive" : nullptr;
}

void reject_unsupported(const std::string& path, std::string_view bytes) {
  const char* const found = unsupported_kind(path, bytes);
  if (found == nullptr) return;
  const auto& kinds = unsupported_kinds();
  const auto kind =
      std::ranges::find_if(kinds, [&](const UnsupportedKind& of) { return std::string_view(of.name) == found; });
  std::string to_do = kind->to_do;
  if (const std::size_t at = to_do.find("FILE"); at != std::string::npos) to_do.replace(at, 4, path);
  throw Error(ExitCode::data, path + " is " + found + ", which cannot be read as training data", {}, to_do);
}

Error not_utf8_error(const std::string& where) {
  return Error(ExitCode::data, "the bytes here are not UTF-8", where,
               "Convert the file: iconv -f ENCODING -t UTF-8 FILE > NEW; or give --strict false to replace such bytes");
}

void reject_other_encoding(const std::string& path, std::int64_t characters, std::int64_t invalid) {
  constexpr std::int64_t most_per_cent = 1;
  if (100 * invalid <= most_per_cent * characters) return;
  throw Error(
      ExitCode::data,
      path + strfmt(" is not UTF-8: of its %ld characters %ld are not (%.1f %%; up to 1 %% would be replaced)",
                    characters, invalid, 100.0 * static_cast<double>(invalid) / static_cast<double>(characters)),
      {}, "Convert it from its encoding: iconv -f GB18030 -t UTF-8 " + path + " > NEW (or WINDOWS-1252, …)");
}

Error zero_byte_error(const std::string& path, std::size_t at) {
  return Error(ExitCode::data, strfmt("%s is not text: byte %zu is zero", path.c_str(), at), {},
               "Give UTF-8 text, rows (.jsonl, .json, .csv; docs/data.md), or llm.c .bin tokens");
}

}  // namespace tessera::io
