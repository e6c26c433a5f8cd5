// SPDX-License-Identifier: Apache-2.0
#include "kernels/gelu.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"

namespace tessera::kernels {

void gelu_forward(const GeluForwardArgs& args, StreamView stream) {
  TESSERA_ASSERT(args.x && args.x.shape == args.y.shape, "x %s, y %s", args.x.shape.str().c_str(),
                 args.y.shape.str().c_str());
  TESSERA_DISPATCH(args.x, gelu_forward, args);
}

void gelu_backward(const GeluBackwardArgs& args, StreamView stream) {
  TESSERA_ASSERT(args.x && args.x.shape == args.dy.shape && args.x.shape == args.dx.shape, "x %s, dy %s, dx %s",
                 args.x.shape.str().c_str(), args.dy.shape.str().c_str(), args.dx.shape.str().c_str());
  TESSERA_DISPATCH(args.x, gelu_backward, args);
}

}  // namespace tessera::kernels
