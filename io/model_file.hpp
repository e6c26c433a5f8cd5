#pragma once
// A model directory (config.json + model.safetensors), read into shards and written from shards: each rank touches only the
// bytes of its own intervals.

#include <cstdint>
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

/// Collective. Fills the shards from DIR/model.safetensors, padding with zeros; returns the bytes that this rank has read.
/// `canonical` maps a file's name to a parameter's ("" = ignore). Throws Error (data), on every rank alike: the file is not
/// there, or is in several shards; one error that lists every missing, unexpected, misshapen and doubled tensor.
std::uint64_t read_model(World& world, const std::string& directory, std::span<const ParamSpec> params,
                         const shard::ShardLayout& layout, std::span<const ShardView> shards,
                         const std::function<std::string(const std::string&)>& canonical);

/// Collective. Writes DIR/model.safetensors (fp32) and DIR/config.json (`config`, byte for byte): temporary names, every rank
/// its own slices by pwrite, fsync, rename by rank 0; the directory is made if it is not there. `write_here`: false on replicas, whose bytes another rank writes.
/// Throws Error (data) on every rank alike; then the directory holds no half file under a final name.
void write_model(World& world, const std::string& directory, const std::string& config, std::span<const ParamSpec> params,
                 const shard::ShardLayout& layout, std::span<const ShardView> shards, bool write_here);

}  // namespace tessera::io
