#pragma once
// Attention as graphs that cuDNN knows as one kernel: the operations are written out, and the library fuses them.
// cudnn.h is in the including source file.

#include "kernels/attention.hpp"
#include "kernels/cuda/cudnn/graph.hpp"

namespace tessera::kernels::cuda::cudnn {

/// Under which numbers an execution names its tensors.
enum AttentionTensor : std::int64_t {
  query = 1,
  key,
  value,
  output,
  lse,  // lse and delta are (B, nh, T) fp32; the others lie in the views of kernels/attention.hpp
  doutput,
  dquery,
  dkey,
  dvalue,
  delta,
  scale,
  minus_infinity,
  one,  // numbers
};

/// out and lse of q, k, v, causal: lse is that of kernels/attention.hpp, of scaled scores.
[[nodiscard]] Graph forward_graph(const AttentionShape& shape, DType dtype);
/// dq, dk, dv, and delta on the way. dq is one product, not a sum over blocks: the library keeps
/// dP for it, and adds in one order.
[[nodiscard]] Graph backward_graph(const AttentionShape& shape, DType dtype);

}  // namespace tessera::kernels::cuda::cudnn
