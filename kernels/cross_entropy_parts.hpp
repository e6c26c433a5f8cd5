// SPDX-License-Identifier: Apache-2.0
#pragma once
// linear_cross_entropy for rows of the weight at a time, so that the full weight need not be in memory: one pass over
// the parts for the loss, and a second for the gradients. On the host, in fp32 (or fp64), with the bits of
// linear_cross_entropy: logits are computed in both passes, and every sum has the order that it has there.

#include "kernels/linear_cross_entropy.hpp"

namespace tessera::kernels {

/// Rows [first, first + v) of a weight of `vocab` rows. Parts are whole chunks (the last ends with the vocabulary), and
/// each pass takes them in ascending order.
struct CrossEntropyPart {
  TensorView x;       // (N, C)
  TensorView weight;  // (v, C)
  std::int64_t vocab = 0, first = 0;
  LogitRules logits = {};
  TensorView targets;    // (N) int32, as in LinearCrossEntropyArgs
  TensorView weights;    // (N) fp32; absent: 1
  TensorView rows;       // u8: cross_entropy_rows_bytes(N), kept from the first part of the first pass to the last
                         // of the second
  TensorView workspace;  // u8: cross_entropy_part_workspace
};
/// First pass. The last part adds the loss to `sums`.
void cross_entropy_part(const CrossEntropyPart& part, LossSums& sums);

/// Second pass: gradients of loss_scale·Σ weight·loss.
struct CrossEntropyPartGradients {
  double loss_scale = 0;
  TensorView dx;            // (N, C), not x: overwritten by the first part, added to by the others; absent: not wanted
  TensorView dweight;       // (v, C), absent: not wanted
  bool accumulate = false;  // add to dweight, or overwrite it
};
void cross_entropy_part_backward(const CrossEntropyPart& part, const CrossEntropyPartGradients& gradients);

[[nodiscard]] std::size_t cross_entropy_rows_bytes(std::int64_t rows);
[[nodiscard]] std::size_t cross_entropy_part_workspace(std::int64_t rows, std::int64_t vocab, DType dtype);
/// Rows of the weight in a chunk.
[[nodiscard]] std::int64_t cross_entropy_chunk(std::int64_t vocab);

}  // namespace tessera::kernels
