// SPDX-License-Identifier: Apache-2.0
// Checks of the biases of groups, and their dispatch to host or device.
#include "kernels/group_bias.hpp"

#include "kernels/cuda/group_bias.hpp"
#include "kernels/host/group_bias.hpp"
#include "kernels/operations.hpp"

namespace tessera::kernels {

static void check_group_bias(const TensorView& offsets, const TensorView& bias, const TensorView& rows) {
  TESSERA_ASSERT(bias.shape.rank() == 2 && rows.shape.rank() == 2 && bias.shape[1] == rows.shape[1] &&
                     (offsets ? offsets.numel() - 1 : 1) == bias.shape[0],
                 "biases %s of rows %s", bias.shape.str().c_str(), rows.shape.str().c_str());
}

void add_group_bias(const AddGroupBiasArgs& args, StreamView stream) {
  check_group_bias(args.offsets, args.bias, args.y);
  TESSERA_DISPATCH(args.y, add_group_bias, args);
}

void group_bias_gradient(const GroupBiasGradientArgs& args, StreamView stream) {
  check_group_bias(args.dispatch.offsets, args.dbias, args.dy);
  TESSERA_ASSERT(!args.weights || args.weights.numel() == args.dy.shape[0]);
  TESSERA_DISPATCH(args.dy, group_bias_gradient, args);
}

void add_group_bias_weights(const GroupBiasWeightsArgs& args, StreamView stream) {
  check_group_bias(args.dispatch.offsets, args.bias, args.dy);
  TESSERA_ASSERT(args.dweights.numel() == args.dy.shape[0] && args.bias.dtype == args.dy.dtype);
  TESSERA_DISPATCH(args.dy, add_group_bias_weights, args);
}

}  // namespace tessera::kernels
