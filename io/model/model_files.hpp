// SPDX-License-Identifier: Apache-2.0
#pragma once
// Plans which file of a model directory holds which tensor: one model.safetensors, or several files and an index. No
// I/O.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "io/model/safetensors.hpp"

namespace tessera::io {

inline constexpr std::uint64_t default_max_shard_bytes = 5'000'000'000;  // "5GB", decimal, as Hugging Face's
inline constexpr const char* model_file_name = "model.safetensors";
inline constexpr const char* adapter_file_name = "adapter_model.safetensors";  // of PEFT
inline constexpr const char* adapter_config_name = "adapter_config.json";
inline constexpr const char* index_file_name = "model.safetensors.index.json";

/// One file to write.
struct PlannedFile {
  std::string name;  // "model.safetensors", "model-00001-of-00004.safetensors"
  SafetensorsPlan plan;
};

/// The files of a model and where each tensor is in them.
struct ModelFiles {
  struct TensorLocation {
    int file = 0;             // index into files
    std::uint64_t begin = 0;  // first byte of the tensor in that file
  };
  std::vector<PlannedFile> files;
  std::string index;                        // text of model.safetensors.index.json; empty if there is one file
  std::vector<TensorLocation> locations;    // in the order of the tensors given
  std::string config_name = "config.json";  // the file that is put in place last
};

/// Assigns tensors to files in the order given, as huggingface_hub does: a new file begins before the tensor that would
/// take the file's data above `max_shard_bytes` (a larger tensor has its own file). The metadata of each header are
/// these; with "format", "pt", if they have none. Throws Error (data) as plan_safetensors does.
[[nodiscard]] ModelFiles plan_model_files(const std::vector<SafetensorsTensor>& tensors,
                                          std::uint64_t max_shard_bytes = default_max_shard_bytes,
                                          std::map<std::string, std::string> metadata = {});

/// The same in one file of this name, with these entries of its header's metadata beside "format".
[[nodiscard]] ModelFiles plan_model_file(const std::vector<SafetensorsTensor>& tensors, const std::string& name,
                                         std::map<std::string, std::string> metadata);

/// A config.json for weights of `dtype`: unchanged, byte for byte, if its torch_dtype and dtype say so or are absent;
/// else the same keys and values in their order with those two set. Throws Error (data) if it is not a JSON object.
[[nodiscard]] std::string config_for_dtype(const std::string& config, DType dtype);

}  // namespace tessera::io
