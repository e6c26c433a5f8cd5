// SPDX-License-Identifier: Apache-2.0
// GELU over this rank's threads.
#include "kernels/gelu.hpp"

#include "kernels/host/gelu.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/host/parallel.hpp"

namespace tessera::kernels::host {

void gelu_forward(const GeluForwardArgs& args) {
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    parallel_elements(args.x.numel(), gelu<T>().forward, args.x.as<T>(), args.y.as<T>());
  });
}

void gelu_backward(const GeluBackwardArgs& args) {
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    parallel_elements(args.x.numel(), gelu<T>().backward, args.x.as<T>(), args.dy.as<T>(), args.dx.as<T>());
  });
}

}  // namespace tessera::kernels::host
