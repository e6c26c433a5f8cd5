// SPDX-License-Identifier: Apache-2.0
#pragma once
// ParamSelector: parameters by glob, as options that name parameters give them.

#include <string>
#include <vector>

#include "models/module.hpp"

namespace tessera::models {

/// A glob (`*` and `?` match dots too, `[ab]` one of a set) selects a parameter if it matches one of its names, or a
/// leading part of one that ends before a dot: "h.1" selects all of block 1, and not block 10. A parameter's names are
/// the canonical one, the same with or without Hugging Face's prefix ("transformer.h.0.ln_1.weight", "h.0.ln_1.weight";
/// "model.layers.0…", "layers.0…"), and those of the tensors of model files that hold or equal it: a tied head, fused
/// experts.
class ParamSelector {
 public:
  explicit ParamSelector(const Model& model);
  /// Indices into Model::params, ascending; none if the glob matches nothing.
  [[nodiscard]] std::vector<int> select(const std::string& glob) const;
  /// What a glob without wildcards can be: every canonical and Hugging Face name, and their leading parts. For
  /// suggestions.
  [[nodiscard]] std::vector<std::string> selectable() const;

 private:
  std::vector<std::vector<std::string>> names_;  // of each parameter; the canonical one first
};

}  // namespace tessera::models
