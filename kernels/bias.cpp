// SPDX-License-Identifier: Apache-2.0
#include "kernels/bias.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"

namespace tessera::kernels {

void bias_backward(const BiasBackwardArgs& args, StreamView stream) {
  TESSERA_ASSERT(args.dy.shape.rank() == 2 && args.dbias.numel() == args.dy.shape[1], "dy %s, dbias %s",
                 args.dy.shape.str().c_str(), args.dbias.shape.str().c_str());
  TESSERA_DISPATCH(args.dy, bias_backward, args);
}

void add(const AddArgs& args, StreamView stream) {
  TESSERA_ASSERT(args.x && args.x.numel() == args.y.numel(), "x %s, y %s", args.x.shape.str().c_str(),
                 args.y.shape.str().c_str());
  TESSERA_DISPATCH(args.x, add, args);
}

}  // namespace tessera::kernels
