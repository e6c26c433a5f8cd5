// SPDX-License-Identifier: Apache-2.0
#pragma once
// Matches the tensors of files with the parameters of a model. Here, because io knows no models and models know no
// files.

#include <optional>
#include <string>
#include <vector>

#include "io/convert/convert.hpp"
#include "models/module.hpp"

namespace tessera::jobs {

/// A stored tensor that must equal another one, because the parameter is tied (a head stored beside the embedding):
/// indices into the stored tensors.
struct TiedCopy {
  int tensor = 0, parameter = 0;
};

struct ModelTensors {
  std::vector<io::ConvertTensor> tensors;  // one for each parameter, in canonical order, fp32
  std::vector<TiedCopy> copies;
};
/// Throws one Error (data) that lists missing and unexpected tensors (E112) and those of another shape or type (E113).
[[nodiscard]] ModelTensors match_model_tensors(const models::Model& model, const io::TensorCatalog& stored,
                                               const std::string& source);

/// The tensors of a checkpoint's parameters, in canonical order, and the files that they are in.
struct CheckpointTensors {
  io::TensorCatalog stored;
  std::vector<io::ConvertTensor> tensors;  // canonical names; fp32
};
/// Of a checkpoint that leaves out frozen parameters: these are those of its base model (base_directory). Throws Error
/// (data): no base model, or one that is not of this model.
[[nodiscard]] CheckpointTensors tensors_with_base(const models::Model& model, const std::string& directory,
                                                  const io::Manifest& manifest);
/// Of the text part of a model of text and images: gives its tensors the names that they have in the files of the model
/// in `directory`, and adds the tensors of its other parts, as they are. Throws Error (data): a tensor that the model
/// does not have in this shape (E112, E113); usage: as io::check_copied_tensors.
void add_other_parts(CheckpointTensors& source, const models::Model& model, const std::string& directory);
/// A source tensor as it is, under `name`, floats as `dtype` if that is given.
[[nodiscard]] io::ConvertTensor copied_tensor(const io::TensorCatalog& stored, std::size_t index, std::string name,
                                              std::optional<DType> dtype);
/// Reads the frozen parameters. Throws Error (data): their checksum is not the manifest's (E145).
void check_base(const CheckpointTensors& source, const std::string& directory, const io::Manifest& manifest);

/// The type named "fp32", "float32", "bf16", "bfloat16", "fp16" or "float16".
[[nodiscard]] std::optional<DType> parse_dtype(const std::string& word);

}  // namespace tessera::jobs
