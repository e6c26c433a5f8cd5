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
/// "model.norm.weight".
[[nodiscard]] std::string name_in_wrapper(const std::string& canonical);

/// Throws Error (usage) with what is missing, and what to do, if `model_type` is of a model whose text part is not
/// supported ("llama4"); returns otherwise.
void refuse_known_wrapper(const std::string& model_type, const std::string& source);

}  // namespace tessera::models
