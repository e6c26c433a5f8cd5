// SPDX-License-Identifier: Apache-2.0
#include "kernels/rms_norm.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/norm_blocks.hpp"
#include "kernels/row_stride.hpp"

namespace tessera::kernels {
namespace {

/// Rows times groups: how many norms.
std::int64_t num_norms(const TensorView& x, const TensorView& weight) {
  const std::int64_t channels = weight.numel();
  TESSERA_ASSERT(x.shape.rank() == 2 && channels > 0 && x.shape[1] % channels == 0, "x %s, weight %s",
                 x.shape.str().c_str(), weight.shape.str().c_str());
  return x.shape[0] * (x.shape[1] / channels);
}

}  // namespace

void rms_norm_forward(const RmsNormForwardArgs& args, StreamView stream) {
  const std::int64_t norms = num_norms(args.x, args.weight);
  TESSERA_ASSERT(args.y.shape == args.x.shape && (!args.rstd || args.rstd.numel() == norms));
  check_stride(args.x, args.stride_x);
  check_stride(args.y, args.stride_y);
  TESSERA_DISPATCH(args.x, rms_norm_forward, args);
}

void rms_norm_apply(const RmsNormApplyArgs& args, StreamView stream) {
  const std::int64_t norms = num_norms(args.x, args.weight);
  TESSERA_ASSERT(args.y.shape == args.x.shape && args.rstd.numel() == norms);
  TESSERA_DISPATCH(args.x, rms_norm_apply, args);
}

std::size_t rms_norm_backward_workspace(std::int64_t channels, DType dtype, Device device) {
  if (device.kind == Device::Kind::cuda && channels > max_device_norm_channels)
    throw Error(
        ExitCode::usage,
        strfmt("training with RMSNorm of %ld channels is not supported on a GPU, whose kernel takes at most %ld",
               channels, max_device_norm_channels),
        "--backend", "Use --backend cpu");
  const std::int64_t blocks = device.kind == Device::Kind::cuda ? rms_norm_device_blocks : norm_blocks;
  return static_cast<std::size_t>(blocks * channels) * size_of(stat_dtype(dtype));
}

void rms_norm_backward(const RmsNormBackwardArgs& args, StreamView stream) {
  const std::int64_t norms = num_norms(args.x, args.weight);
  if (!args.dx && !args.dweight) return;
  TESSERA_ASSERT(args.dy.shape == args.x.shape && (!args.dx || args.dx.shape == args.x.shape) &&
                 args.rstd.numel() == norms && (!args.dweight || args.dweight.numel() == args.weight.numel()));
  TESSERA_ASSERT(!args.dweight || args.workspace.nbytes() >=
                                      rms_norm_backward_workspace(args.weight.numel(), args.x.dtype, args.x.device),
                 "workspace of %zu bytes", args.workspace.nbytes());
  check_stride(args.dy, args.stride_dy);
  check_stride(args.x, args.stride_x);
  if (args.dx) check_stride(args.dx, args.stride_dx);
  TESSERA_DISPATCH(args.x, rms_norm_backward, args);
}

}  // namespace tessera::kernels
