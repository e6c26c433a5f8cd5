// SPDX-License-Identifier: Apache-2.0
#pragma once
// GroupParams: a parameter of each group of a grouped GEMM, equally spaced among the module's parameters; or one that
// has the matrices of all groups.

#include "kernels/grouped_gemm.hpp"
#include "models/params.hpp"
#include "runtime/base/error.hpp"

namespace tessera::models {

struct GroupParams {
  int first = -1, step = 1;  // position of the first group's, and the step to the next; 0: one (groups, …) for all
  std::int64_t groups = 0;

  [[nodiscard]] int at(std::int64_t group) const { return first + static_cast<int>(group) * step; }
  [[nodiscard]] kernels::GroupMatrices of(std::span<const TensorView> views) const {
    return {&models::at(views, first), step};
  }
  /// How many groups' gradients are wanted.
  [[nodiscard]] int num_wanted(const Wanted& wanted) const {
    int num = 0;
    for (std::int64_t e = 0; e < groups; ++e) num += wanted[at(e)] ? 1 : 0;
    return num;
  }
  /// The same as a part of all.
  [[nodiscard]] double part_wanted(const Wanted& wanted) const {
    return static_cast<double>(num_wanted(wanted)) / static_cast<double>(groups);
  }
  /// The first position that has a buffer; -1: none has. Asserts that all buffers are added to, or all overwritten.
  [[nodiscard]] int first_wanted(const Gradients& grads) const {
    int found = -1;
    for (std::int64_t e = 0; e < groups; ++e) {
      if (!grads[at(e)]) continue;
      if (found < 0) found = at(e);
      TESSERA_ASSERT(grads.adds(at(e)) == grads.adds(found), "some groups add to their gradients");
    }
    return found;
  }
};

}  // namespace tessera::models
