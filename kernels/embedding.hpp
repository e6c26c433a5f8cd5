// SPDX-License-Identifier: Apache-2.0
#pragma once
// Token and position embedding: y[b,t] = tokens_table[ids[b,t]] + positions_table[position], where the position is t,
// or as `positions` has it. A table of tokens may be a part of one: of ids from first_id on. The rows of y whose ids
// are others are then 0.

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

struct EmbeddingForwardArgs {
  TensorView ids;              // (B, T) int32, every id in the table or, of a part, in that of all parts
  TensorView tokens_table;     // (V, C)
  TensorView positions_table;  // (P, C); absent: no positions
  TensorView positions;        // (B, T) int32, each below P; absent: 0 … T-1 in every row
  TensorView y;                // (B, T, C)
  std::int64_t first_id = 0;
};
void embedding_forward(const EmbeddingForwardArgs& args, StreamView stream);

struct EmbeddingBackwardArgs {
  TensorView ids;  // (B, T) int32
  TensorView dy;   // (B, T, C)
  /// (V, C) of dy's dtype, or fp32 with 16-bit dy; summed in fp32, rounded once; absent: not wanted.
  TensorView dtokens_table;
  bool accumulate_tokens = false;
  TensorView dpositions_table;  // (P, C) of the same kind; absent: not wanted
  bool accumulate_positions = false;
  TensorView positions = {};  // as in forward
  TensorView workspace = {};  // embedding_backward_workspace bytes
  std::int64_t first_id = 0;  // as in forward; others do not count for the table of tokens
  std::int64_t num_ids = 0;   // of all parts together; 0: V
};
/// Rows are summed in token order for any number of threads (threads split the columns).
void embedding_backward(const EmbeddingBackwardArgs& args, StreamView stream);
/// Bytes, for B·T rows; 0 on the host.
[[nodiscard]] std::size_t embedding_backward_workspace(std::int64_t rows, Device device);

}  // namespace tessera::kernels
