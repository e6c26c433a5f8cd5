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
  lse,  // lse and delta are (B, nh, T) fp32; the others are the views of kernels/attention.hpp
  doutput,
  dquery,
  dkey,
  dvalue,
  delta,
  scale,
  minus_infinity,
  one,  // numbers
};

/// out and lse of q, k, v, causal; lse of scaled scores, as in kernels/attention.hpp.
[[nodiscard]] Graph forward_graph(const AttentionShape& shape, DType dtype);
/// dq, dk, dv, and delta as an intermediate. dq is one GEMM, not a sum over blocks, so the library keeps dP and adds in
/// one order.
[[nodiscard]] Graph backward_graph(const AttentionShape& shape, DType dtype);

}  // namespace tessera::kernels::cuda::cudnn
