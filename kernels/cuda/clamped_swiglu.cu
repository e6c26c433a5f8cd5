// SPDX-License-Identifier: Apache-2.0
// The clamped SwiGLU on a device: one pass; a thread has 16 bytes of y and the 32 of gate and up that they come from.
#include "kernels/cuda/clamped_swiglu.hpp"

#include "kernels/cuda/activations.hpp"
#include "kernels/cuda/vector.cuh"

namespace tessera::kernels::cuda {
namespace {

/// Gate and up after the limits, and whether each has a slope there.
struct ClampedPair {
  float gate, up;
  bool gate_moves, up_moves;
  __device__ ClampedPair(float g, float u, float limit)
      : gate(g > limit ? limit : g),
        up(u > limit    ? limit
           : u < -limit ? -limit
                        : u),
        gate_moves(!(g > limit)),
        up_moves(!(u > limit) && !(u < -limit)) {}
};

/// N pairs of gate and up, from or to x.
template <int N, class T>
__device__ __forceinline__ void load_pairs(const T* p, float (&x)[2 * N]) {
  if constexpr (N == 1) x[0] = to_float(p[0]), x[1] = to_float(p[1]);
  else load<2 * N>(p, x);
}
template <int N, class T>
__device__ __forceinline__ void store_pairs(T* p, const float (&x)[2 * N]) {
  if constexpr (N == 1) p[0] = rounded<T>(x[0]), p[1] = rounded<T>(x[1]);
  else store<2 * N>(p, x);
}

template <class T>
struct ClampedForward {
  const T* gate_up;
  T* y;
  float alpha, limit;
  template <int N>
  __device__ void run(std::int64_t at) const {
    float x[2 * N], v[N];
    load_pairs<N>(gate_up + 2 * at, x);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const ClampedPair p(x[2 * i], x[2 * i + 1], limit);
      const float e = exponential(-bounded(mul(alpha, p.gate)));
      v[i] = mul(add(p.up, 1.0F), quotient(p.gate, add(1.0F, e)));
    }
    store<N>(y + at, v);
  }
};

template <class T>
struct ClampedBackward {
  const T *gate_up, *dy;
  T* dgate_up;
  float alpha, limit;
  template <int N>
  __device__ void run(std::int64_t at) const {
    float x[2 * N], d[N];
    load_pairs<N>(gate_up + 2 * at, x);
    load<N>(dy + at, d);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const ClampedPair p(x[2 * i], x[2 * i + 1], limit);
      const float e = exponential(-bounded(mul(alpha, p.gate))), s = quotient(1.0F, add(1.0F, e));
      const float slope = mul(s, fused(mul(alpha, p.gate), mul(e, s), 1.0F));
      x[2 * i] = p.gate_moves ? mul(mul(d[i], add(p.up, 1.0F)), slope) : 0.0F;
      x[2 * i + 1] = p.up_moves ? mul(d[i], mul(p.gate, s)) : 0.0F;
    }
    store_pairs<N>(dgate_up + 2 * at, x);
  }
};

}  // namespace

void clamped_swiglu_forward(const ClampedSwigluForwardArgs& args, StreamView stream) {
  dispatch_dtype(args.y.dtype, [&]<class T>(T) {
    const ClampedForward<T> op{data_of<T>(args.gate_up), data_of<T>(args.y), static_cast<float>(args.limits.alpha),
                               static_cast<float>(args.limits.limit)};
    for_each<vector_length<T>>(op, args.y.numel(), {args.gate_up.data, args.y.data}, stream, "clamped_swiglu_forward");
  });
}

void clamped_swiglu_backward(const ClampedSwigluBackwardArgs& args, StreamView stream) {
  dispatch_dtype(args.dy.dtype, [&]<class T>(T) {
    const ClampedBackward<T> op{data_of<T>(args.gate_up), data_of<T>(args.dy), data_of<T>(args.dgate_up),
                                static_cast<float>(args.limits.alpha), static_cast<float>(args.limits.limit)};
    for_each<vector_length<T>>(op, args.dy.numel(), {args.gate_up.data, args.dy.data, args.dgate_up.data}, stream,
                               "clamped_swiglu_backward");
  });
}

}  // namespace tessera::kernels::cuda
