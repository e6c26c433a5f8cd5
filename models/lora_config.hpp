// SPDX-License-Identifier: Apache-2.0
#pragma once
// adapter_config.json, as PEFT writes and reads it.

#include <string>

#include "models/module.hpp"

namespace tessera::models {

/// The adapters that an adapter_config.json describes. Throws Error (data) naming the key: not JSON, another method
/// than LoRA, a value that is malformed, or a setting that is not supported. `source`: the file's name, for messages.
[[nodiscard]] LoraSpec parse_lora_config(const std::string& text, const std::string& source);

/// The adapter_config.json of Model::lora. `base`: base_model_name_or_path.
[[nodiscard]] std::string lora_config_text(const Model& model, const std::string& base);

}  // namespace tessera::models
