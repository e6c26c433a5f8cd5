#pragma once
// TensorUse: what a tensor of a model file is to a model. Models say it by name, io reads by it.

#include <string>
#include <vector>

#include "runtime/base/tensor.hpp"

namespace tessera {

struct TensorUse {
  /// Parameters whose elements lie one after another in the tensor: one, of the tensor's shape; or several
  /// (fused experts). None: ignored.
  std::vector<std::string> parts;
  Shape shape;          // of the tensor where it holds several parts
  std::string same_as;  // no part, but a copy of this parameter (a tied head), which must be equal to it

  [[nodiscard]] bool ignored() const { return parts.empty() && same_as.empty(); }
};

}  // namespace tessera
