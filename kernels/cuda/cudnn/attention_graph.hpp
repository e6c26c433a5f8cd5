// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention as operation graphs that cuDNN fuses into one kernel. The including source includes cudnn.h.

#include "kernels/attention.hpp"
#include "kernels/cuda/cudnn/graph.hpp"

namespace tessera::kernels::cuda::cudnn {

/// Unique ids of the tensors of an execution.
enum AttentionTensor : std::int64_t {
  query = 1,
  key,
  value,
  output,
  lse,  // fp32, as delta; the others are the views of kernels/attention.hpp
  doutput,
  dquery,
  dkey,
  dvalue,
  delta,
  scale,
  minus_infinity,
  one,
  window,  // numbers
  lengths,
  qkv_offsets,
  out_offsets,
  lse_offsets,  // int32 in device memory, of documents
};

/// Which sequences a graph is of: B rows of T tokens each, or up to B documents of up to T tokens, end to end, whose
/// lengths and offsets are in device memory: (B) tokens, and (B + 1) elements into qkv, out and lse. lse is then
/// (tokens, nh).
enum class Sequences : unsigned char { rows, documents };

/// The shape of a graph: sequences, tokens and heads of one call, and the heads of the tensors that they are part of.
struct GraphShape {
  AttentionShape part;
  std::int64_t heads = 0, kv_heads = 0;  // of qkv, out and lse
  Sequences sequences = Sequences::rows;
  explicit GraphShape(const AttentionShape& s, Sequences of = Sequences::rows)
      : part(s), heads(s.heads), kv_heads(s.kv_heads), sequences(of) {
    if (s.window >= s.tokens) part.window = 0;  // no key is before it
  }
  /// The same for so many of its key-value heads, with their query heads.
  [[nodiscard]] GraphShape of_heads(std::int64_t count) const {
    GraphShape some = *this;
    some.part.heads = heads / kv_heads * count;
    some.part.kv_heads = count;
    return some;
  }
};

/// out and lse of q, k, v, causal and within AttentionShape::window; lse of scaled scores, as in kernels/attention.hpp.
[[nodiscard]] Graph forward_graph(const GraphShape& shape, DType dtype);
/// dq, dk, dv, and delta (B, nh, T) of the part as an intermediate. dq is one GEMM, not a sum over blocks, so the
/// library keeps dP and adds in one order.
[[nodiscard]] Graph backward_graph(const GraphShape& shape, DType dtype);

}  // namespace tessera::kernels::cuda::cudnn
