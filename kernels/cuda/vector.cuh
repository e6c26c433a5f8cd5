// SPDX-License-Identifier: Apache-2.0
#pragma once
// Vectors of elements in registers as fp32, loaded and stored 16 bytes at a time if alignment allows. Only for .cu
// files.

#include "kernels/cuda/launch.cuh"

namespace tessera::kernels::cuda {

/// Elements of the narrowest of the types in 16 bytes.
template <class... T>
inline constexpr int vector_length = ((sizeof(T) == 2) || ...) ? 8 : 4;

/// v = p[0, N) as fp32. N > 1: p is aligned to 16 bytes, or to N·sizeof(T) if that is less.
template <int N, class T>
__device__ __forceinline__ void load(const T* p, float (&v)[N]) {
  if constexpr (N == 1) {
    v[0] = to_float(*p);
  } else {
    static_assert(N * sizeof(T) % 16 == 0);
    constexpr int loads = N * static_cast<int>(sizeof(T)) / 16, each = N / loads;
#pragma unroll
    for (int w = 0; w < loads; ++w) {
      const uint4 raw = reinterpret_cast<const uint4*>(p)[w];
      T parts[each];
      memcpy(parts, &raw, 16);
#pragma unroll
      for (int i = 0; i < each; ++i) v[w * each + i] = to_float(parts[i]);
    }
  }
}

/// p[0, N) = v, each rounded once.
template <int N, class T>
__device__ __forceinline__ void store(T* p, const float (&v)[N]) {
  if constexpr (N == 1) {
    *p = rounded<T>(v[0]);
  } else {
    static_assert(N * sizeof(T) % 16 == 0);
    constexpr int loads = N * static_cast<int>(sizeof(T)) / 16, each = N / loads;
#pragma unroll
    for (int w = 0; w < loads; ++w) {
      T parts[each];
#pragma unroll
      for (int i = 0; i < each; ++i) parts[i] = rounded<T>(v[w * each + i]);
      uint4 raw;
      memcpy(&raw, parts, 16);
      reinterpret_cast<uint4*>(p)[w] = raw;
    }
  }
}

/// op.template run<N>(first) for every N elements, and run<1> for the remainder: 64-bit indices, N elements per thread.
template <int N, class Op>
__global__ void __launch_bounds__(256) each_kernel(const Op op, std::int64_t n) {
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x) * N;
  if (first + N <= n) {
    op.template run<N>(first);
  } else {
    for (std::int64_t i = first; i < n; ++i) op.template run<1>(i);
  }
}

/// Launches op over n elements; vectors of N if every pointer is aligned.
template <int N, class Op>
void for_each(const Op& op, std::int64_t n, std::initializer_list<const void*> pointers, StreamView stream,
              const char* name) {
  if (n == 0) return;
  bool aligned = true;
  for (const void* p : pointers) aligned = aligned && aligned16(p);
  if (aligned) each_kernel<N><<<blocks_for(n, 256 * N), 256, 0, stream_of(stream)>>>(op, n);
  else each_kernel<1><<<blocks_for(n, 256), 256, 0, stream_of(stream)>>>(op, n);
  check_launch(name);
}

/// y = F(x) element by element, for for_each.
template <auto F, class From, class To>
struct Unary {
  const From* x;
  To* y;
  template <int N>
  __device__ void run(std::int64_t at) const {
    float v[N];
    load<N>(x + at, v);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = F(v[i]);
    store<N>(y + at, v);
  }
};

/// y = F(a, b) element by element, for for_each; y may be a or b. `a` may be of another type.
template <auto F, class A, class T = A>
struct Binary {
  const A* a;
  const T* b;
  T* y;
  template <int N>
  __device__ void run(std::int64_t at) const {
    float v[N], w[N];
    load<N>(a + at, v);
    load<N>(b + at, w);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = F(v[i], w[i]);
    store<N>(y + at, v);
  }
};

TESSERA_HD float sum(float a, float b) { return a + b; }

}  // namespace tessera::kernels::cuda
