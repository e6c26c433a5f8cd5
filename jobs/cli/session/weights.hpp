// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reads the weights of a model directory into shards, whatever it holds. Here, because io knows no models.

#include <span>
#include <string>

#include "io/checkpoint/manifest.hpp"
#include "io/model/model_io.hpp"
#include "models/module.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

/// Where the weights go.
struct WeightsTarget {
  const models::Model* model = nullptr;
  const shard::ShardLayout* layout = nullptr;
  std::span<const io::ShardView> shards;
  int threads = 3;  // of this rank, for reading a checkpoint
};
/// Collective. From safetensors or a checkpoint; of a checkpoint without its frozen parameters, first those of its base
/// model (base_directory). Throws Error (data) on every rank alike.
void read_weights(World& world, const std::string& directory, const WeightsTarget& target);

/// Collective. Throws Error (data) on every rank if a directory holds no weights, and says what it holds instead.
void require_weights(World& world, const std::string& directory);
/// True if a directory holds weights: safetensors or a checkpoint.
[[nodiscard]] bool holds_weights(const std::string& directory);
/// The type that a model came in: fp32, bf16 or fp16, as its config.json says ("dtype", "torch_dtype"); else, of
/// safetensors, the type of most elements; else fp32. Throws Error (data) as open_safetensors_model.
[[nodiscard]] DType model_dtype(const std::string& config_json, const std::string& directory);

/// The type of most elements of the safetensors in a directory: fp32, bf16 or fp16. Throws Error (data) as
/// open_safetensors_model.
[[nodiscard]] DType stored_dtype(const std::string& directory);

/// The base model of a checkpoint that was saved without frozen parameters: `given` if it holds weights, else the
/// directory in the manifest's run metadata. Throws Error (data) if neither does.
[[nodiscard]] std::string base_directory(const io::Manifest& manifest, const std::string& checkpoint,
                                         const std::string& given = "");
/// The directory that a checkpoint's run metadata records as its model's; "": none.
[[nodiscard]] std::string recorded_base(const io::Manifest& manifest);
inline constexpr int max_bases = 8;  // of a checkpoint: its base may be a checkpoint that has one
inline constexpr const char* base_model_key = "base_model";  // in the run metadata: its absolute path
/// In the run metadata of a text part's checkpoint: io::checksum_of_copied of that model, in hexadecimal digits.
inline constexpr const char* copied_crc_key = "base_copied_crc32c";
/// Throws Error (data), E145, if the tensors that are copied from the model in `directory`, of this checksum, are not
/// those that the checkpoint's run began with. W076: the checkpoint does not say.
void check_copied_crc(const io::Manifest& manifest, const std::string& checkpoint, const std::string& directory,
                      std::uint32_t crc);

}  // namespace tessera::jobs
