#pragma once
// Which tensor of a model directory stands in which file: one model.safetensors, or shards with their index.
// Pure: nothing is read or written.

#include <cstdint>
#include <string>
#include <vector>

#include "io/model/safetensors.hpp"

namespace tessera::io {

inline constexpr std::uint64_t default_max_shard_bytes = 5'000'000'000;  // "5GB", decimal, as Hugging Face's
inline constexpr const char* model_file_name = "model.safetensors";
inline constexpr const char* index_file_name = "model.safetensors.index.json";

/// One file to write: its name in the directory, its header, and where each of its tensors lies.
struct PlannedFile {
  std::string name;  // "model.safetensors", "model-00001-of-00004.safetensors"
  SafetensorsPlan plan;
};

/// The files of a model and the place of each tensor in them.
struct ModelFiles {
  struct TensorLocation {
    int file = 0;             // index into files
    std::uint64_t begin = 0;  // first byte of the tensor in that file
  };
  std::vector<PlannedFile> files;
  std::string index;                      // text of model.safetensors.index.json; empty where there is one file
  std::vector<TensorLocation> locations;  // in the order of the tensors given
};

/// Deals tensors to files greedily in the order given: a file is closed before the tensor that would take its data
/// above `max_shard_bytes` (a larger tensor has a file of its own), as huggingface_hub does. Throws Error (data) as
/// plan_safetensors does.
[[nodiscard]] ModelFiles plan_model_files(const std::vector<SafetensorsTensor>& tensors,
                                          std::uint64_t max_shard_bytes = default_max_shard_bytes);

/// The text of a config.json for weights of `dtype`: as it is, byte for byte, where its torch_dtype and dtype say so or
/// are not there; else the same keys and values in their order with those two set. Throws Error (data) if it is no JSON
/// object.
[[nodiscard]] std::string config_for_dtype(const std::string& config, DType dtype);

}  // namespace tessera::io
