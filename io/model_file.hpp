#pragma once
// A model directory (config.json + model.safetensors), read into shards and written from shards: each rank touches only the
// bytes of its own intervals.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/param.hpp"
#include "runtime/comm/world.hpp"
#include "runtime/shard/layout.hpp"

namespace tessera::io {

/// This rank's piece of a unit, as the shard manager hands it out: shard_numel(unit) fp32 elements.
struct ShardView {
  int unit = 0;
  int shard = 0;
  float* data = nullptr;
};

/// Fills the shards from DIR/model.safetensors. `canonical` maps a file's name to a parameter's ("" = ignore).
/// Throws Error (data), on every rank alike: the file is not there; one error that lists every missing, unexpected and
/// misshapen tensor.
void read_model(World& world, const std::string& directory, std::span<const ParamSpec> params, const shard::ShardLayout& layout,
                std::span<const ShardView> shards, const std::function<std::string(const std::string&)>& canonical);

/// Collective. Writes DIR/model.safetensors (fp32) and DIR/config.json (`config`, byte for byte): temporary names, every rank
/// its own slices by pwrite, fsync, rename by rank 0. `write_here`: false on replicas, whose bytes another rank writes.
/// Throws Error (data) on every rank alike; then the directory holds no half file under a final name.
void write_model(World& world, const std::string& directory, const std::string& config, std::span<const ParamSpec> params,
                 const shard::ShardLayout& layout, std::span<const ShardView> shards, bool write_here);

}  // namespace tessera::io
