// SPDX-License-Identifier: Apache-2.0
#pragma once
// TensorUse: which parameters a tensor of a model file holds. Models define it; io reads files by it.

#include <string>
#include <vector>

#include "runtime/base/tensor.hpp"

namespace tessera {

struct TensorUse {
  /// Parameters in the tensor, one after another: one of the tensor's shape, or several (fused experts). None: ignored.
  std::vector<std::string> parts;
  Shape shape;          // shape of the tensor if it holds several parameters
  std::string same_as;  // `parts` is empty and the tensor must equal this parameter (a tied head)

  [[nodiscard]] bool ignored() const { return parts.empty() && same_as.empty(); }
};

}  // namespace tessera
