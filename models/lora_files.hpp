// SPDX-License-Identifier: Apache-2.0
#pragma once
// Names of tensors in PEFT's adapter files: "base_model.model.<module>.lora_A.weight", with the module's name in
// transformers.

#include <string>
#include <vector>

#include "models/module.hpp"

namespace tessera::models {

/// A tensor of an adapter file.
struct AdapterTensor {
  std::string name;
  int param = -1;  // index into Model::params
};
/// The tensors of the model's trained parameters (Model::lora is set): A and B of each adapter, modules_to_save (a tied
/// one under both names), biases.
[[nodiscard]] std::vector<AdapterTensor> adapter_tensors(const Model& model);
/// The parameter in a tensor of an adapter file; for a name that is no adapter's, that name itself. A frozen
/// parameter's must equal the base model's (TensorUse::same_as).
[[nodiscard]] TensorUse adapter_tensor_use(const Model& model, const std::string& name);

}  // namespace tessera::models
