// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where the adapter of --adapters is, and its adapter_config.json. One process.

#include <string>

namespace tessera::jobs {

/// An adapter's config. No text: no adapter.
struct AdapterConfig {
  std::string text;       // of adapter_config.json, byte for byte
  std::string directory;  // of the adapter or the checkpoint; "": unknown

  /// For messages.
  [[nodiscard]] std::string source() const;
};

/// The adapter at a path: a directory of PEFT's files; a checkpoint of a LoRA run; a run's directory, or one with its
/// vN-… in it (the newest with an adapter counts), which stands for its adapter_model.safetensors, or if it has none
/// for its newest checkpoint. Throws Error (data): none of these.
[[nodiscard]] AdapterConfig locate_adapter(const std::string& path);

/// The adapter of a checkpoint; without text if the checkpoint is not of a LoRA run. Throws Error (data).
[[nodiscard]] AdapterConfig adapter_of_checkpoint(const std::string& directory);

/// The base model that an adapter's config names (base_model_name_or_path, revision): that path, or the directory of
/// the model of that name in a local cache. Throws Error (data): none is named, or it is not there.
[[nodiscard]] std::string base_of_adapter(const AdapterConfig& adapter);

/// Throws Error (data) if the directory, given as --model, holds an adapter.
void refuse_adapter_as_model(const std::string& directory);

}  // namespace tessera::jobs
