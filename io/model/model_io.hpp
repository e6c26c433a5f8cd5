// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reads a model directory (config.json and safetensors) into sharded parameters, and writes one from them. Each rank
// reads and writes only the bytes of its own shards.

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "io/model/auxiliary_files.hpp"
#include "io/model/model_files.hpp"
#include "runtime/base/param.hpp"
#include "runtime/base/tensor.hpp"
#include "runtime/base/tensor_use.hpp"
#include "runtime/comm/world.hpp"
#include "runtime/shard/layout.hpp"

namespace tessera::io {

/// This rank's shard of a unit.
struct ShardView {
  int unit = 0;
  int shard = 0;
  TensorView data;  // shard_numel(unit) elements: fp32, or bf16 or fp16 if the unit is kept in it
  int part = 0;     // of split parameters, which one (ShardLayout::part_of)
};

/// Throws Error (data) if a directory holds no safetensors of a model, and says what there is instead.
void require_model_files(const std::string& directory);

/// Collective. Fills the shards from the directory's safetensors (fp32, bf16, fp16, fp64), rounded to the views' types,
/// and their padding with zeros; returns the bytes that this rank has read, headers included. `use` maps a tensor's
/// name to parameters. Throws Error (data) on every rank alike: no files, or invalid ones (open_safetensors_model);
/// tensors that do not match the parameters (match_model); a copy that differs from its parameter (E114); an element
/// that the view's type cannot hold; in a model that came quantized, a matrix in another form than the parameter's.
std::uint64_t read_model(World& world, const std::string& directory, std::span<const ParamSpec> params,
                         const shard::ShardLayout& layout, std::span<const ShardView> shards,
                         const std::function<TensorUse(const std::string&)>& use);
/// The same where each tensor is one parameter, of the name that `canonical` returns ("": the tensor is ignored).
std::uint64_t read_model(World& world, const std::string& directory, std::span<const ParamSpec> params,
                         const shard::ShardLayout& layout, std::span<const ShardView> shards,
                         const std::function<std::string(const std::string&)>& canonical);

/// Collective. The trained parameters (ParamSpec::trainable) from an adapter's safetensors file; the others stay as
/// they are. read_model, in turn, leaves adapters as they are. Throws as read_model does.
std::uint64_t read_adapter(World& world, const std::string& file, std::span<const ParamSpec> params,
                           const shard::ShardLayout& layout, std::span<const ShardView> shards,
                           const std::function<TensorUse(const std::string&)>& use);

struct WriteModelOptions {
  std::uint64_t max_shard_bytes = default_max_shard_bytes;
  std::string auxiliary_source;                     // a directory whose auxiliary files are copied; "": none
  DType dtype = DType::f32;                         // of the tensors: fp32, bf16 or fp16
  std::vector<AuxiliaryFile> auxiliary_files = {};  // in place of the source's of the same names
  /// Of a part of the model, an adapter: its one file, what its header says, the config's name, and the tensors. No
  /// file: all parameters, by their names, in model.safetensors.
  struct Tensor {
    std::string name;
    int param = -1;
  };
  std::vector<Tensor> tensors = {};
  std::string file = {}, config_name = "config.json";
  std::map<std::string, std::string> metadata = {};
  /// `directory` must not exist: it is made under another name (ModelDirectory::Holds::model_alone).
  bool new_directory = false;
};

/// Collective. Writes the weights, in whatever type they are kept, as `dtype`, rounded to nearest even
/// (model.safetensors, or several files and their index), config.json (`config`, byte for byte) and auxiliary files
/// into `directory`, which may hold other files; afterwards it has all of the model, or no config.json
/// (ModelDirectory). Of the replicas of a shard one writes it. Throws Error (data) on every rank alike; a finite
/// element that fp16 cannot hold is one.
void write_model(World& world, const std::string& directory, const std::string& config,
                 std::span<const ParamSpec> params, const shard::ShardLayout& layout, std::span<const ShardView> shards,
                 const WriteModelOptions& options = {});

}  // namespace tessera::io
