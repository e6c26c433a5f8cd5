// SPDX-License-Identifier: Apache-2.0
// File name endings and magic numbers.

#include "io/data/data_kind.hpp"

#include <algorithm>
#include <cctype>
#include <vector>

namespace tessera::io {

namespace {

bool has_suffix(const std::string& path, std::string_view suffix) {
  if (path.size() < suffix.size()) return false;
  return std::equal(suffix.begin(), suffix.end(), path.end() - static_cast<std::ptrdiff_t>(suffix.size()),
                    [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); });
}

}  // namespace

void reject_unsupported(const std::string& path, std::string_view bytes) {
  struct Kind {
    const char* name;
    std::vector<std::string_view> suffixes;
    std::string_view magic;
    const char* to_do;
  };
  static const char* const convert = "Write its text column as .jsonl, one {\"text\": …} a line";
  static const char* const unpack = "Unpack it first";
  static const std::vector<Kind> kinds = {
      {"a Parquet file", {".parquet"}, "PAR1", convert},
      {"an Arrow file", {".arrow", ".feather"}, "ARROW1", convert},
      {"gzip-compressed", {".gz", ".tgz"}, "\x1f\x8b", unpack},
      {"zstd-compressed", {".zst"}, "\x28\xb5\x2f\xfd", unpack},
      {"xz-compressed",
       {".xz"},
       "\xfd"
       "7zXZ",
       unpack},
      {"a zip archive", {".zip"}, "PK\x03\x04", unpack},
      {"an HDF5 file", {".h5", ".hdf5"}, "\x89HDF", convert},
      {"a numpy file", {".npy"}, "\x93NUMPY", convert},
  };
  for (const auto& kind : kinds) {
    bool named = bytes.starts_with(kind.magic);
    for (const auto suffix : kind.suffixes) named = named || has_suffix(path, suffix);
    if (named)
      throw Error(ExitCode::data, path + " is " + kind.name + ", which cannot be read as training data", {},
                  kind.to_do);
  }
}

std::string data_kind(const std::string& path) {
  for (const char* kind : {"jsonl", "json", "bin"})
    if (has_suffix(path, std::string(".") + kind)) return kind;
  return "text";
}

bool is_data_name(const std::string& name) { return data_kind(name) != "text" || has_suffix(name, ".txt"); }

Error zero_byte_error(const std::string& path, std::size_t at) {
  return Error(ExitCode::data, strfmt("%s is not text: byte %zu is zero", path.c_str(), at), {},
               "Give UTF-8 text, .jsonl with a \"text\" key, or llm.c .bin tokens");
}

}  // namespace tessera::io
