// SPDX-License-Identifier: Apache-2.0
#pragma once
// Writes a model of which the parameters are a part, such as the text part of a model of text and images.

#include "io/model/model_io.hpp"

namespace tessera::io {

/// The whole model's files, and which parameters a tensor of them holds.
struct PartOf {
  std::string directory;
  std::function<TensorUse(const std::string&)> use;
};

/// write_model of all parameters under the names that the tensors of `whole` have, with copies of the tensors that its
/// `use` ignores, in their own types. Throws as write_model and open_safetensors_model do.
void write_model_part(World& world, const std::string& directory, const std::string& config,
                      std::span<const ParamSpec> params, const shard::ShardLayout& layout,
                      std::span<const ShardView> shards, const WriteModelOptions& options, const PartOf& whole);

}  // namespace tessera::io
