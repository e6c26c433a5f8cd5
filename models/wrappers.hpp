// SPDX-License-Identifier: Apache-2.0
#pragma once
// Models of text and images whose text part is a model of a family here: config.json has it under "text_config", and
// files have other tensors too, of vision towers and what connects them. Text alone is computed and trained.

#include <string>

#include "models/module.hpp"

namespace tessera::models {

/// Whether models of this family (model_type) are the text parts of such models: their files keep the tensors that
/// tensor_use ignores.
[[nodiscard]] bool is_text_part(const std::string& family);
/// A parameter's name in transformers' class of the whole model: "model.language_model.norm.weight" of
/// "model.norm.weight", and of Llama 4 "language_model.model.norm.weight".
[[nodiscard]] std::string name_in_wrapper(const std::string& family, const std::string& canonical);

}  // namespace tessera::models
