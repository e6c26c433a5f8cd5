#pragma once
// A model directory (config.json and weights, in one file or in shards with an index), read into shards and written
// from shards: each rank touches only the bytes of its own intervals.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/model/model_files.hpp"
#include "runtime/base/param.hpp"
#include "runtime/base/tensor_use.hpp"
#include "runtime/comm/world.hpp"
#include "runtime/shard/layout.hpp"

namespace tessera::io {

/// This rank's piece of a unit, as the shard manager hands it out: shard_numel(unit) fp32 elements.
struct ShardView {
  int unit = 0;
  int shard = 0;
  float* data = nullptr;
  Device device;  // where they lie
};

/// Collective. Fills the shards from DIR's safetensors (fp32, bf16, fp16, fp64), padding with zeros; returns the bytes
/// that this rank has read, headers included. `use` says what a tensor of the files is to the model. Throws Error
/// (data), on every rank alike: no files there, or bad ones (open_safetensors_model); one error (E112, E113) that lists
/// every missing, unexpected, misshapen and doubled tensor; a copy that is not equal to its parameter (E114).
std::uint64_t read_model(World& world, const std::string& directory, std::span<const ParamSpec> params,
                         const shard::ShardLayout& layout, std::span<const ShardView> shards,
                         const std::function<TensorUse(const std::string&)>& use);
/// The same where a tensor is simply the parameter of its canonical name ("": ignored).
std::uint64_t read_model(World& world, const std::string& directory, std::span<const ParamSpec> params,
                         const shard::ShardLayout& layout, std::span<const ShardView> shards,
                         const std::function<std::string(const std::string&)>& canonical);

struct WriteModelOptions {
  std::uint64_t max_shard_bytes = default_max_shard_bytes;
  std::string companions;  // a directory whose tokenizer files, generation_config.json … are copied; "": none
};

/// Collective. Writes DIR's weights (fp32; model.safetensors, or shards and their index), DIR/config.json (`config`,
/// byte for byte) and companions: temporary names, every rank its own slices by pwrite, fsync, rename by rank 0, the
/// index behind its shards, config.json last; the directory is made if it is not there, and weights of the other form
/// that stood there are removed. `write_here`: false on replicas, whose bytes another rank writes. Throws Error (data)
/// on every rank alike; then the directory holds no half file under a final name.
void write_model(World& world, const std::string& directory, const std::string& config,
                 std::span<const ParamSpec> params, const shard::ShardLayout& layout, std::span<const ShardView> shards,
                 bool write_here, const WriteModelOptions& options = {});

}  // namespace tessera::io
