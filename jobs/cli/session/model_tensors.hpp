#pragma once
// Which stored tensors a model's parameters are made of: between io, which knows no models, and models, which know no
// files.

#include <optional>
#include <string>
#include <vector>

#include "io/convert/convert.hpp"
#include "models/module.hpp"

namespace tessera::jobs {

/// A tensor of a file that must be equal to a parameter (a tied head that is stored too): indices into the stored
/// tensors.
struct TiedCopy {
  int tensor = 0, parameter = 0;
};

struct ModelTensors {
  std::vector<io::ConvertTensor> tensors;  // one for each parameter, in canonical order, fp32
  std::vector<TiedCopy> copies;
};
/// Throws Error (data): one error that lists what is missing or unexpected (E112), and what has another shape or type
/// (E113).
[[nodiscard]] ModelTensors match_model_tensors(const models::Model& model, const io::TensorCatalog& stored,
                                               const std::string& source);

/// "fp32", "bfloat16", … as a type.
[[nodiscard]] std::optional<DType> parse_dtype(const std::string& word);

}  // namespace tessera::jobs
