#pragma once
// LoRA: options to adapters, and adapter directories (adapter_config.json, adapter_model.safetensors), read and
// written. Functions that take a World are collective.

#include <span>
#include <string>

#include "io/checkpoint/manifest.hpp"
#include "io/model/model_io.hpp"
#include "jobs/cli/options/options.hpp"
#include "models/module.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

inline constexpr const char* adapter_config_name = "adapter_config.json";

/// Whether the run trains adapters: --tuner_type lora, or --adapters.
[[nodiscard]] bool trains_lora(const Options& options);
/// Whether checkpoints leave out frozen parameters: --save_only_trainable; with LoRA, that is its default.
[[nodiscard]] bool saves_only_trainable(const Options& options);
/// Throws Error (usage) for options of LoRA that contradict one another, or have no effect.
void check_lora_options(const Options& options);

/// Adds the adapters of `config` (an adapter_config.json), or if that is empty, of the options. Throws Error as
/// models::add_lora does.
void add_adapters(models::Model& model, const Options& options, const std::string& config);

/// Text of DIRECTORY/adapter_config.json. Throws Error (data).
[[nodiscard]] std::string read_adapter_config(const std::string& directory);

/// This rank's parameters.
struct AdapterShards {
  const models::Model* model = nullptr;
  const shard::ShardLayout* layout = nullptr;
  std::span<const io::ShardView> shards;
};
/// Reads an adapter of the base model that the shards hold. Throws Error (data) on every rank alike: no file; tensors
/// that do not match the model; another base, by the checksum in a file of ours.
void read_adapter(World& world, const std::string& directory, const AdapterShards& to);
/// Writes the adapter as PEFT does, with the checksum of its base and the tokenizer of `auxiliary_source`; `base`: path
/// of the base model.
void write_adapter(World& world, const std::string& directory, const std::string& base,
                   const std::string& auxiliary_source, const AdapterShards& from);

}  // namespace tessera::jobs
