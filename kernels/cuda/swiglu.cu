// SPDX-License-Identifier: Apache-2.0
// SwiGLU on a device: one pass; backward may write over what it reads.
#include "kernels/cuda/activations.hpp"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/vector.cuh"
#include "kernels/swiglu.hpp"

namespace tessera::kernels::cuda {
namespace {

template <class T>
struct Backward {
  const T *gate, *up, *dy;
  T *dgate, *dup;
  template <int N>
  __device__ void run(std::int64_t at) const {
    float g[N], u[N], d[N];
    load<N>(gate + at, g);
    load<N>(up + at, u);
    load<N>(dy + at, d);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const SwigluSlopes slopes = swiglu_slopes(g[i], u[i], d[i]);
      g[i] = slopes.gate;
      u[i] = slopes.up;
    }
    store<N>(dgate + at, g);
    store<N>(dup + at, u);
  }
};

}  // namespace

void swiglu_forward(const SwigluForwardArgs& args, StreamView stream) {
  dispatch_dtype(args.gate.dtype, [&]<class T>(T) {
    for_each<vector_length<T>>(Binary<swiglu, T>{data_of<T>(args.gate), data_of<T>(args.up), data_of<T>(args.y)},
                               args.gate.numel(), {args.gate.data, args.up.data, args.y.data}, stream,
                               "swiglu_forward");
  });
}

void swiglu_backward(const SwigluBackwardArgs& args, StreamView stream) {
  dispatch_dtype(args.gate.dtype, [&]<class T>(T) {
    const Backward<T> op{data_of<T>(args.gate), data_of<T>(args.up), data_of<T>(args.dy), data_of<T>(args.dgate),
                         data_of<T>(args.dup)};
    for_each<vector_length<T>>(op, args.gate.numel(),
                               {args.gate.data, args.up.data, args.dy.data, args.dgate.data, args.dup.data}, stream,
                               "swiglu_backward");
  });
}

}  // namespace tessera::kernels::cuda
