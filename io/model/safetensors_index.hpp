// SPDX-License-Identifier: Apache-2.0
#pragma once
// model.safetensors.index.json, and the files of a sharded model: opened and checked against the index.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/model/safetensors.hpp"

namespace tessera::io {

/// A parsed index. File names have no directory part.
struct SafetensorsIndex {
  struct Entry {
    std::string tensor, file;
  };
  std::vector<Entry> entries;               // by tensor name, each once
  std::optional<std::uint64_t> total_size;  // bytes of all tensors
  /// Each file once, by name.
  [[nodiscard]] std::vector<std::string> files() const;
};

/// Throws Error (data): not JSON or not of this form (E103), a tensor twice (E104), a file name that is empty,
/// absolute, or has a '/' or ".." (E110). Memory is proportional to the text.
[[nodiscard]] SafetensorsIndex parse_safetensors_index(std::string_view text, const std::string& source);

/// All safetensors files of a model: of DIR (its index, or its model.safetensors), of an index file, or the one file
/// that `path` is. Throws Error (data): no file; a missing file, other tensors in a file than the index maps to
/// it, or a wrong total_size (E111); a link that leaves the directory (E110; links into the blobs of a Hugging Face
/// cache are allowed); and as SafetensorsFile.
[[nodiscard]] std::vector<SafetensorsFile> open_safetensors_model(const std::string& path);

/// The path of a file named in a directory's index. Throws Error (data): a link that leaves the directory (E110), a
/// missing file (E111).
[[nodiscard]] std::string shard_path(const std::string& directory, const std::string& file);

}  // namespace tessera::io
