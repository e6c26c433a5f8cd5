// SPDX-License-Identifier: Apache-2.0
#pragma once
// RMSNorm (Zhang, Sennrich 2019): y = x / sqrt(mean(x²) + eps) · weight, over groups of C numbers: whole
// rows, or the heads in them. Of Gemma's the factor is weight + 1.

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

inline constexpr std::int64_t max_device_norm_channels = 16384;  // of backward on a device

/// What is added to the weight where nothing is: x + -0 is x to the bit.
inline constexpr double no_weight_offset = -0.0;

/// Rows may be columns of a wider matrix: strides are elements from row to row; 0: contiguous rows.
struct RmsNormForwardArgs {
  TensorView x;       // (N, G·C): each of the N·G groups of C has its own norm
  TensorView weight;  // (C)
  TensorView y;       // (N, G·C); may be x
  TensorView rstd;    // (N·G) of stat_dtype, written for backward; absent: not written
  double eps = 1e-6;
  double weight_offset = no_weight_offset;  // the factor is weight + weight_offset
  std::int64_t stride_x = 0, stride_y = 0;
};
void rms_norm_forward(const RmsNormForwardArgs& args, StreamView stream);

/// Recomputes y from the saved rstd: the same bits as the forward pass.
struct RmsNormApplyArgs {
  TensorView x, weight, rstd, y;  // as above; contiguous rows
  double weight_offset = no_weight_offset;
};
void rms_norm_apply(const RmsNormApplyArgs& args, StreamView stream);

struct RmsNormBackwardArgs {
  TensorView dy;      // (N, G·C)
  TensorView x;       // (N, G·C), the forward's input
  TensorView weight;  // (C); at most max_device_norm_channels on a device
  TensorView rstd;    // (N·G)
  /// (N, G·C); may be dy; with add_to_dx added to the residual's gradient in it; absent: not wanted.
  TensorView dx;
  bool add_to_dx = false;
  /// (C) of dy's dtype, or fp32 with 16-bit dy; summed in fp32, rounded once; absent: not wanted.
  TensorView dweight;
  bool accumulate = false;  // add to dweight, or overwrite it
  TensorView workspace;     // rms_norm_backward_workspace bytes; absent without dweight
  double weight_offset = no_weight_offset;
  std::int64_t stride_dy = 0, stride_x = 0, stride_dx = 0;
};
/// Rows are summed into dweight by blocks that depend on N only: the same bits for any number of threads, and whether
/// dx or dweight or both are wanted.
void rms_norm_backward(const RmsNormBackwardArgs& args, StreamView stream);
/// Bytes, for any number of rows and threads. Throws Error (usage) if `channels` is above max_device_norm_channels on a
/// device: the plan of a training run asks.
[[nodiscard]] std::size_t rms_norm_backward_workspace(std::int64_t channels, DType dtype, Device device = host_device);

}  // namespace tessera::kernels
