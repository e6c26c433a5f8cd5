// SPDX-License-Identifier: Apache-2.0
#pragma once
// LoRA: options to adapters, and adapter directories (adapter_config.json, adapter_model.safetensors), read and
// written. Functions that take a World are collective.

#include <map>
#include <optional>
#include <span>
#include <string>

#include "io/checkpoint/manifest.hpp"
#include "io/model/model_io.hpp"
#include "jobs/cli/options/options.hpp"
#include "jobs/cli/session/adapter_config.hpp"
#include "models/module.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

/// Whether the run trains adapters: --tuner_type lora, or --adapters.
[[nodiscard]] bool trains_lora(const Options& options);
/// Whether checkpoints leave out frozen parameters: --save_only_trainable; with LoRA, that is its default.
[[nodiscard]] bool saves_only_trainable(const Options& options);
/// Throws Error (usage) for options of LoRA that contradict one another, or have no effect.
void check_lora_options(const Options& options);

/// Adds the adapters of a config. Throws Error naming the file.
void add_adapters(models::Model& model, const AdapterConfig& config, std::optional<double> dropout = {});
/// Adds the adapters of `config`, or if it has no text, of the options. Throws Error as
/// models::add_lora does.
void add_adapters(models::Model& model, const Options& options, const AdapterConfig& config);

/// Throws Error (usage) unless a run with this model can resume from the checkpoint that `saved` is of, because both
/// have the same adapters, or none. `config_json`: the model's.
void require_same_adapters(const models::Model& model, const std::string& config_json, const AdapterConfig& saved);

/// This rank's parameters.
struct AdapterShards {
  const models::Model* model = nullptr;
  const shard::ShardLayout* layout = nullptr;
  std::span<const io::ShardView> shards;
};
/// Reads an adapter of the base model that the shards hold from AdapterConfig::directory, a directory of PEFT's or a
/// checkpoint. Throws Error (data) on every rank alike: tensors that do not match the model; another base, by the
/// checksum in a file of ours.
void read_adapter(World& world, const std::string& directory, const AdapterShards& to);
/// What the header of an adapter file says of its base.
[[nodiscard]] std::map<std::string, std::string> adapter_metadata(const io::BaseModel& base);
/// Writes the adapter as PEFT does, with the checksum of its base, and the auxiliary files of `options`; `base`: path
/// of the base model.
void write_adapter(World& world, const std::string& directory, const std::string& base, io::WriteModelOptions options,
                   const AdapterShards& from);

}  // namespace tessera::jobs
