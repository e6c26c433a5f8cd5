// SPDX-License-Identifier: Apache-2.0
#pragma once
// What stages of modules do with values, where ranks have parts of matrices and of the tokens between them.

#include "kernels/convert.hpp"
#include "models/module.hpp"

namespace tessera::models {

/// A value's bytes as rows.
[[nodiscard]] inline TensorView as_rows(const TensorView& bytes, DType dtype, const Shape& rows) {
  return {bytes.data, dtype, rows, bytes.device};
}

/// A sum in the activations' type: itself, or rounded in `scratch`.
[[nodiscard]] inline TensorView rounded(const TensorView& sum, const TensorView& scratch, StreamView stream) {
  if (!scratch || scratch.dtype == sum.dtype) return sum;
  kernels::convert({.from = sum, .to = scratch}, stream);
  return scratch;
}

/// The shape of the tokens that so many ranks have together.
[[nodiscard]] inline BatchShape all_tokens(BatchShape shape, int ranks) {
  if (!shape.whole) shape.tokens *= ranks;
  return shape;
}

/// What a stage of all these tokens reads of the batch: whole rows, or the parts of them that the ranks have together,
/// from the first one on, whose positions it needs. In generation a rank has whole rows already.
[[nodiscard]] inline Batch whole_rows(const Batch* batch, const BatchShape& shape) {
  Batch rows = batch != nullptr ? *batch : Batch{};
  rows.dropout.skipped = 0;
  if (shape.whole) return rows;
  rows.positions = rows.part_positions ? rows.part_positions : rows.row_positions;
  rows.ids = rows.part_ids;
  rows.targets = rows.part_targets;
  return rows;
}

}  // namespace tessera::models
