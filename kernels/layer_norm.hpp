// SPDX-License-Identifier: Apache-2.0
#pragma once
// LayerNorm over the last dimension, biased variance (Ba, Kiros, Hinton 2016): y = (x - mean)·rstd·weight + bias.

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

struct LayerNormForwardArgs {
  TensorView x;             // (N, C)
  TensorView weight, bias;  // (C)
  TensorView y;             // (N, C); may be x
  TensorView mean, rstd;    // (N) of stat_dtype, written for backward; absent: not written
  double eps = 1e-5;
};
void layer_norm_forward(const LayerNormForwardArgs& args, StreamView stream);

/// Recomputes y from the saved mean and rstd: the same bits as the forward pass.
struct LayerNormApplyArgs {
  TensorView x, weight, bias, mean, rstd, y;
};
void layer_norm_apply(const LayerNormApplyArgs& args, StreamView stream);

struct LayerNormBackwardArgs {
  TensorView dy;          // (N, C)
  TensorView x;           // (N, C), the forward's input
  TensorView weight;      // (C)
  TensorView mean, rstd;  // (N)
  /// (N, C); may be dy; with add_to_dx added to the residual's gradient in it; absent: not wanted.
  TensorView dx;
  bool add_to_dx = false;
  /// (C) of dy's dtype, or fp32 with 16-bit dy; summed in fp32, rounded once; each absent: not wanted.
  TensorView dweight, dbias;
  bool accumulate = false;  // add to dweight, dbias, or overwrite them
  TensorView workspace;     // layer_norm_backward_workspace bytes; absent without dweight and dbias
};
/// Rows are summed into dweight and dbias by blocks that depend on N only: the same bits for any number of threads, and
/// whichever of dx, dweight and dbias are wanted.
void layer_norm_backward(const LayerNormBackwardArgs& args, StreamView stream);
/// Bytes, for any number of rows and threads.
[[nodiscard]] std::size_t layer_norm_backward_workspace(std::int64_t channels, DType dtype);

}  // namespace tessera::kernels
