// SPDX-License-Identifier: Apache-2.0
#include "kernels/layer_norm.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/norm_blocks.hpp"

namespace tessera::kernels {
namespace {

struct NormShape {
  std::int64_t rows = 0, channels = 0;
};

NormShape shape_of(const TensorView& x, const TensorView& weight) {
  TESSERA_ASSERT(x.shape.rank() == 2 && x.shape[1] > 0 && weight.numel() == x.shape[1], "x %s, weight %s",
                 x.shape.str().c_str(), weight.shape.str().c_str());
  return {x.shape[0], x.shape[1]};
}

}  // namespace

void layer_norm_forward(const LayerNormForwardArgs& args, StreamView stream) {
  const auto [rows, channels] = shape_of(args.x, args.weight);
  TESSERA_ASSERT(args.bias.numel() == channels && args.y.shape == args.x.shape);
  TESSERA_ASSERT((!args.mean || args.mean.numel() == rows) && (!args.rstd || args.rstd.numel() == rows));
  TESSERA_DISPATCH(args.x, layer_norm_forward, args);
}

void layer_norm_apply(const LayerNormApplyArgs& args, StreamView stream) {
  const auto [rows, channels] = shape_of(args.x, args.weight);
  TESSERA_ASSERT(args.bias.numel() == channels && args.y.shape == args.x.shape && args.mean.numel() == rows &&
                 args.rstd.numel() == rows);
  TESSERA_DISPATCH(args.x, layer_norm_apply, args);
}

std::size_t layer_norm_backward_workspace(std::int64_t channels, DType dtype) {
  return static_cast<std::size_t>(2 * norm_blocks * channels) * size_of(stat_dtype(dtype));
}

void layer_norm_backward(const LayerNormBackwardArgs& args, StreamView stream) {
  const auto [rows, channels] = shape_of(args.x, args.weight);
  const bool sums = args.dweight || args.dbias;
  if (!args.dx && !sums) return;
  TESSERA_ASSERT(args.dy.shape == args.x.shape && (!args.dx || args.dx.shape == args.x.shape) &&
                 args.mean.numel() == rows && args.rstd.numel() == rows);
  TESSERA_ASSERT((!args.dweight || args.dweight.numel() == channels) &&
                 (!args.dbias || args.dbias.numel() == channels));
  TESSERA_ASSERT(!sums || args.workspace.nbytes() >= layer_norm_backward_workspace(channels, args.x.dtype),
                 "workspace of %zu bytes", args.workspace.nbytes());
  TESSERA_DISPATCH(args.x, layer_norm_backward, args);
}

}  // namespace tessera::kernels
