// SPDX-License-Identifier: Apache-2.0
#pragma once
// Matches the tensors of a model's files with the model's parameters: every tensor is accounted for, or one error lists
// what does not match.

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/param.hpp"
#include "runtime/base/tensor_use.hpp"

namespace tessera::io {

/// A tensor of a file. What `name` and `shape` view must outlive the match.
struct TensorInfo {
  std::string_view name;
  std::span<const std::int64_t> shape;
  const char* type = "";  // the file's name for it
  bool is_float = true;   // f64, f32, bf16 or f16
};
/// "[2, 3]"
[[nodiscard]] std::string shape_text(std::span<const std::int64_t> shape);

struct ModelMatch {
  /// The elements of a tensor from `first` on: a fused tensor holds several parameters.
  struct ElementRange {
    int tensor = -1;
    std::int64_t first = 0;
  };
  struct Copy {
    int tensor = 0, param = 0;
  };
  std::vector<ElementRange> params;  // of each parameter
  std::vector<Copy> copies;          // tensors that must be equal to a parameter
};

/// Which parameters files hold: those of the base model, all but adapters; or of an adapter, those that are trained.
enum class ModelPart : unsigned char { base, adapter };
[[nodiscard]] inline bool is_in(ModelPart part, const ParamSpec& param) {
  return part == ModelPart::base ? !param.adapter : param.trainable;
}

/// `use` says which parameters a tensor holds; `source` is the directory, for the message. Throws Error (data): one
/// line that lists missing and unexpected tensors (E112), and tensors of another shape, doubled or not of a float type
/// (E113), up to 10 of each kind and how many more there are. Parameters that are not in `part` are not looked for.
[[nodiscard]] ModelMatch match_model(std::span<const TensorInfo> tensors, const std::string& source,
                                     std::span<const ParamSpec> params,
                                     const std::function<TensorUse(const std::string&)>& use,
                                     ModelPart part = ModelPart::base);

}  // namespace tessera::io
