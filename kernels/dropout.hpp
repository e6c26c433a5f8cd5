// SPDX-License-Identifier: Apache-2.0
#pragma once
// Dropout whose mask is a function of (key, row, column), not of a generator's state: the backward pass and
// recomputation make it again, and no split of the rows changes it.

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

/// How many columns have their random numbers together.
inline constexpr int dropout_columns = 8;

/// y = mask·x / (1 - p), with p rounded to a multiple of 2^-16 below 1. The four words of
/// philox(key, row·⌈C/8⌉ + c/8), where row = first_row + n, are eight numbers of 16 bits, the lower half of a word
/// first; element (n, c) is kept if number c % 8 is at least p·2^16. C is the number of columns of the matrix that x
/// has columns of.
struct DropoutArgs {
  TensorView x;  // (N, columns)
  TensorView y;  // as x; may be x
  double p = 0;  // [0, 1)
  std::uint64_t key = 0;
  std::int64_t first_row = 0;  // of the first row, in the numbering of all rows
  // x is columns from `first_column` on, a multiple of dropout_columns, of a matrix with so many; 0: it has all.
  std::int64_t first_column = 0, columns = 0;
  bool accumulate = false;  // y += mask·x / (1 - p)
};
void dropout(const DropoutArgs& args, StreamView stream);

/// The counters of philox for the columns of each row of x.
struct DropoutCounters {
  std::int64_t first, step;  // of the first row; from row to row
};
[[nodiscard]] inline DropoutCounters dropout_counters(const DropoutArgs& args) {
  const std::int64_t all = args.columns > 0 ? args.columns : args.x.shape[1];
  const std::int64_t step = (all + dropout_columns - 1) / dropout_columns;
  return {args.first_row * step + args.first_column / dropout_columns, step};
}

/// Of the rounded p.
struct DropoutScalars {
  std::uint16_t threshold = 0;  // the smallest number that is kept: p·2^16
  double scale = 1;             // of what is kept: 1 / (1 - p)
};
[[nodiscard]] DropoutScalars dropout_scalars(double p);

}  // namespace tessera::kernels
