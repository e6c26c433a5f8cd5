// SPDX-License-Identifier: Apache-2.0
#pragma once
// Matrices that are columns of a wider one: arguments give the elements from one row to the next; 0: contiguous rows.

#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

[[nodiscard]] inline std::int64_t row_stride(const TensorView& matrix, std::int64_t given) {
  return given > 0 ? given : matrix.shape[1];
}
/// Asserts that rows do not overlap.
inline void check_stride(const TensorView& matrix, std::int64_t given) {
  TESSERA_ASSERT(given == 0 || (matrix.shape.rank() == 2 && given >= matrix.shape[1]), "rows of %s, %ld apart",
                 matrix.shape.str().c_str(), given);
}

}  // namespace tessera::kernels
