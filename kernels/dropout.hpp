// SPDX-License-Identifier: Apache-2.0
#pragma once
// Dropout whose mask is a function of (key, row, column), not of a generator's state: the backward pass and
// recomputation make it again, and no split of the rows changes it.

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

/// y = mask·x / (1 - p). With w = word c % 4 of philox(key, row·⌈C/4⌉ + c/4), where row = first_row + n, element (n, c)
/// is kept if w ≥ p·2^32.
struct DropoutArgs {
  TensorView x;  // (N, C)
  TensorView y;  // as x; may be x
  double p = 0;  // [0, 1)
  std::uint64_t key = 0;
  std::int64_t first_row = 0;  // of the first row, in the numbering of all rows
  bool accumulate = false;     // y += mask·x / (1 - p)
};
void dropout(const DropoutArgs& args, StreamView stream);

/// The smallest word that is kept.
[[nodiscard]] std::uint32_t dropout_threshold(double p);

}  // namespace tessera::kernels
