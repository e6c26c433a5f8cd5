// SPDX-License-Identifier: Apache-2.0
// GELU on a device: one pass, 16 bytes per thread and tensor.
#include "kernels/cuda/activations.hpp"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/vector.cuh"
#include "kernels/gelu.hpp"

namespace tessera::kernels::cuda {

void gelu_forward(const GeluForwardArgs& args, StreamView stream) {
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    for_each<vector_length<T>>(Unary<gelu, T, T>{data_of<T>(args.x), data_of<T>(args.y)}, args.x.numel(),
                               {args.x.data, args.y.data}, stream, "gelu_forward");
  });
}

void gelu_backward(const GeluBackwardArgs& args, StreamView stream) {
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    for_each<vector_length<T>>(Binary<gelu_gradient, T>{data_of<T>(args.x), data_of<T>(args.dy), data_of<T>(args.dx)},
                               args.x.numel(), {args.x.data, args.dy.data, args.dx.data}, stream, "gelu_backward");
  });
}

}  // namespace tessera::kernels::cuda
