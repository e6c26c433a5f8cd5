// SPDX-License-Identifier: Apache-2.0
// SwiGLU over this rank's threads.
#include "kernels/swiglu.hpp"

#include "kernels/host/ops.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/host/swiglu.hpp"

namespace tessera::kernels::host {

void swiglu_forward(const SwigluForwardArgs& args) {
  dispatch_dtype(args.gate.dtype, [&]<class T>(T) {
    parallel_elements(args.gate.numel(), swiglu<T>().forward, args.gate.as<T>(), args.up.as<T>(), args.y.as<T>());
  });
}

void swiglu_backward(const SwigluBackwardArgs& args) {
  dispatch_dtype(args.gate.dtype, [&]<class T>(T) {
    parallel_elements(args.gate.numel(), swiglu<T>().backward, args.gate.as<T>(), args.up.as<T>(), args.dy.as<T>(),
                      args.dgate.as<T>(), args.dup.as<T>());
  });
}

}  // namespace tessera::kernels::host
