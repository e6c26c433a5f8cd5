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

inline constexpr std::size_t max_index_bytes = 256u << 20;  // a million tensors with long names

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

/// The files that an index names, and those of their set (model-00003-of-00003.safetensors) that it does not, by name.
[[nodiscard]] std::vector<std::string> shards_of(const SafetensorsIndex& index, const std::string& directory);

/// All safetensors files of a model: of DIR (its index, or its model.safetensors), of an index file, or the one file
/// that `path` is. Warns of tensors that the index does not map to the file that has them (W091; of two, the one that
/// it maps is in entries()), of a wrong total_size (W092), of links out of the directory (W093; into the blobs of a
/// Hugging Face cache they are silent). Throws Error (data): no file; a missing one, a tensor that its file lacks, an
/// unmapped one in two files (E111); weights of another form (foreign_weights); and as SafetensorsFile.
[[nodiscard]] std::vector<SafetensorsFile> open_safetensors_model(const std::string& path);

/// The path of a file named in a directory's index. Warns of a link out of the directory (W093). Throws Error (data): a
/// missing file (E111).
[[nodiscard]] std::string shard_path(const std::string& directory, const std::string& file);

}  // namespace tessera::io
