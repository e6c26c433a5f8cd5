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

/// Throws Error (usage), which names the tensor, if one that `use` ignores is in codes of 8 bits or fewer (F8, U8, I8),
/// whose copy the saved config would not explain.
void check_copied_tensors(const PartOf& whole);

/// Collective. A CRC32C of the tensors that `use` ignores, of names, types, shapes and bytes: the same however the
/// model's files divide them. Each rank reads a share. Throws on every rank alike, as check_copied_tensors.
[[nodiscard]] std::uint32_t checksum_of_copied(World& world, const PartOf& whole);

/// write_model of all parameters under the names that the tensors of `whole` have, with copies of the tensors that its
/// `use` ignores, in their own types. Throws as write_model, open_safetensors_model and
/// check_copied_tensors do.
void write_model_part(World& world, const std::string& directory, const std::string& config,
                      std::span<const ParamSpec> params, const shard::ShardLayout& layout,
                      std::span<const ShardView> shards, const WriteModelOptions& options, const PartOf& whole);

}  // namespace tessera::io
