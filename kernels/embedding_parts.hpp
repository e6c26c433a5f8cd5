// SPDX-License-Identifier: Apache-2.0
#pragma once
// embedding_forward and embedding_backward for rows of the token table at a time, on the host in fp32 (or fp64), with
// the same bits.

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

/// Writes the rows of y whose id is in [first, first + v), and leaves the others.
struct EmbeddingPartForwardArgs {
  TensorView ids;           // (B, T) int32
  TensorView tokens_table;  // (v, C): rows [first, first + v) of the table
  std::int64_t first = 0;
  TensorView y;  // (B, T, C)
};
void embedding_part_forward(const EmbeddingPartForwardArgs& args);

/// y += positions_table[position], positions as in EmbeddingForwardArgs.
struct AddPositionsArgs {
  TensorView positions_table;  // (P, C)
  TensorView positions;        // (B, T) int32; absent: 0 … T-1 in every row
  TensorView y;                // (B, T, C)
};
void add_positions(const AddPositionsArgs& args);

/// dtokens_table[id - first] += dy of the rows whose id is in [first, first + v), in token order.
struct EmbeddingPartBackwardArgs {
  TensorView ids;  // (B, T) int32
  TensorView dy;   // (B, T, C)
  std::int64_t first = 0;
  TensorView dtokens_table;  // (v, C)
  bool accumulate = false;   // add to it, or overwrite it
};
void embedding_part_backward(const EmbeddingPartBackwardArgs& args);

}  // namespace tessera::kernels
