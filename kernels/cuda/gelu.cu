// GELU on a device: one pass, 16 bytes per thread and tensor.
#include "kernels/cuda/activations.hpp"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/vector.cuh"
#include "kernels/gelu.hpp"

namespace tessera::kernels::cuda {
namespace {

template <class T>
struct Forward {
  const T* x;
  T* y;
  template <int N>
  __device__ void run(std::int64_t at) const {
    float v[N];
    load<N>(x + at, v);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = gelu(v[i]);
    store<N>(y + at, v);
  }
};

template <class T>
struct Backward {
  const T *x, *dy;
  T* dx;
  template <int N>
  __device__ void run(std::int64_t at) const {
    float v[N], d[N];
    load<N>(x + at, v);
    load<N>(dy + at, d);
#pragma unroll
    for (int i = 0; i < N; ++i) d[i] = mul(d[i], gelu_slope(v[i]));
    store<N>(dx + at, d);
  }
};

}  // namespace

void gelu_forward(const GeluForwardArgs& args, StreamView stream) {
  dispatch_dtype(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_each<vector_length<T>>(Forward<T>{data_of<T>(args.x), data_of<T>(args.y)}, args.x.numel(),
                               {args.x.data, args.y.data}, stream, "gelu_forward");
  });
}

void gelu_backward(const GeluBackwardArgs& args, StreamView stream) {
  dispatch_dtype(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_each<vector_length<T>>(Backward<T>{data_of<T>(args.x), data_of<T>(args.dy), data_of<T>(args.dx)},
                               args.x.numel(), {args.x.data, args.dy.data, args.dx.data}, stream, "gelu_backward");
  });
}

}  // namespace tessera::kernels::cuda
