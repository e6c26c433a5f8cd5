// SPDX-License-Identifier: Apache-2.0
#pragma once
// "architectures" of a config.json: the classes of transformers that a model was saved from.

#include <string>
#include <vector>

#include "models/config_reader.hpp"

namespace tessera::models {

/// Throws Error (usage) for a class of another task, which computes something else than a causal language model: labels
/// of tokens, spans, masked tokens, an encoder; and for anything but a list of strings.
void refuse_other_tasks(const ConfigReader& config);

/// The classes that are neither language models nor reward models of this program's families, as the file lists them.
/// Such a model is read as a causal language model. Empty for a text that make refuses.
[[nodiscard]] std::vector<std::string> other_architectures(const std::string& config_json);

/// The classes beside the model, "modeling_x.XForCausalLM", which "auto_map" names for a config or a model (AutoConfig,
/// AutoModel…) and which transformers takes where it is told to trust them. Empty for a text that make refuses.
[[nodiscard]] std::vector<std::string> classes_beside_model(const std::string& config_json);

}  // namespace tessera::models
