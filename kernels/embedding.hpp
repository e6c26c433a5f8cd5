#pragma once
// Token and position embedding: y[b,t] = tokens_table[ids[b,t]] + positions_table[position], a position
// being t or what `positions` says.

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

struct EmbeddingForwardArgs {
  TensorView ids;              // (B, T) int32, every id in [0, V): callers have checked
  TensorView tokens_table;     // (V, C)
  TensorView positions_table;  // (P, C); absent: no positions
  TensorView positions;        // (B, T) int32, each below P; absent: 0 … T-1 in every row
  TensorView y;                // (B, T, C)
};
void embedding_forward(const EmbeddingForwardArgs& args, StreamView stream);

struct EmbeddingBackwardArgs {
  TensorView ids;            // (B, T) int32
  TensorView dy;             // (B, T, C)
  TensorView dtokens_table;  // (V, C) of dy's type, or fp32 beside halves; summed in fp32, rounded once
  bool accumulate_tokens = false;
  TensorView dpositions_table;  // (P, C) likewise, or absent
  bool accumulate_positions = false;
  TensorView positions = {};  // as forward's
  TensorView workspace = {};  // embedding_backward_workspace bytes
};
/// Rows are summed in token order whatever the number of threads (threads split the columns).
void embedding_backward(const EmbeddingBackwardArgs& args, StreamView stream);
/// Of B·T rows; 0 on the host.
[[nodiscard]] std::size_t embedding_backward_workspace(std::int64_t rows, Device device);

}  // namespace tessera::kernels
