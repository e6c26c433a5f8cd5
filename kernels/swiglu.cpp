// SPDX-License-Identifier: Apache-2.0
#include "kernels/swiglu.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/row_stride.hpp"

namespace tessera::kernels {

void swiglu_forward(const SwigluForwardArgs& args, StreamView stream) {
  TESSERA_ASSERT(args.gate.shape == args.up.shape && args.gate.shape == args.y.shape, "gate %s, up %s, y %s",
                 args.gate.shape.str().c_str(), args.up.shape.str().c_str(), args.y.shape.str().c_str());
  check_stride(args.gate, args.stride);
  check_stride(args.y, args.stride_y);
  TESSERA_DISPATCH(args.gate, swiglu_forward, args);
}

void swiglu_backward(const SwigluBackwardArgs& args, StreamView stream) {
  const Shape& shape = args.gate.shape;
  TESSERA_ASSERT(
      args.up.shape == shape && args.dy.shape == shape && args.dgate.shape == shape && args.dup.shape == shape,
      "gate %s, dy %s", shape.str().c_str(), args.dy.shape.str().c_str());
  TESSERA_ASSERT(args.dgate.data != args.dup.data || shape.numel() == 0);
  check_stride(args.gate, args.stride);
  TESSERA_DISPATCH(args.gate, swiglu_backward, args);
}

}  // namespace tessera::kernels
