#pragma once
// model.safetensors.index.json, and a model's safetensors files as one: opened, and checked against each other.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/model/safetensors.hpp"

namespace tessera::io {

/// What an index says. File names are plain names in its own directory.
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
/// absolute, or has a '/' or ".." (E110). Takes memory in proportion to the text only.
[[nodiscard]] SafetensorsIndex parse_safetensors_index(std::string_view text, const std::string& source);

/// All safetensors files of a model: of DIR (its index, or its model.safetensors), of an index file, or the one file
/// that `path` is. Throws Error (data): none there; a shard that is missing, or has not the tensors that the index maps
/// to it, or others, or a wrong total_size (E111); a shard that is a link out of the directory (E110; links into the
/// blobs of a Hugging Face cache are good); and as SafetensorsFile.
[[nodiscard]] std::vector<SafetensorsFile> open_safetensors_model(const std::string& path);

/// The path of a shard named in DIRECTORY's index. Throws Error (data), E110: a link out of the directory; E111: not
/// there.
[[nodiscard]] std::string shard_path(const std::string& directory, const std::string& file);

}  // namespace tessera::io
