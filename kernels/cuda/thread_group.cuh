// SPDX-License-Identifier: Apache-2.0
#pragma once
// A group of threads that share a row: a warp, or a block of 256. Sums by fixed trees, so that equal calls give equal
// bits. Only for .cu files.

#include "kernels/cuda/launch.cuh"

namespace tessera::kernels::cuda {

inline constexpr int group_block = 256;  // threads of a block: one group of 256 or eight of 32

template <class V>
__device__ __forceinline__ V warp_sum(V v) {
#pragma unroll
  for (int width = 16; width > 0; width /= 2) v += __shfl_xor_sync(0xffffffffu, v, width);
  return v;
}
template <class V>
__device__ __forceinline__ V warp_max(V v) {
#pragma unroll
  for (int width = 16; width > 0; width /= 2) {
    const V other = __shfl_xor_sync(0xffffffffu, v, width);
    v = other > v ? other : v;
  }
  return v;
}

/// Size 32 or 256. Every thread of the group must call sum().
template <int Size>
struct ThreadGroup {
  static constexpr int per_block = group_block / Size;
  static_assert(Size == 32 || Size == group_block);

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % Size; }
  /// The group's index in the grid.
  __device__ static std::int64_t index() {
    return static_cast<std::int64_t>(blockIdx.x) * per_block + static_cast<int>(threadIdx.x) / Size;
  }
  /// The sum over the group, returned to every thread.
  template <class V>
  __device__ static V sum(V v) {
    v = warp_sum(v);
    if constexpr (Size > 32) {
      __shared__ V parts[Size / 32];
      __syncthreads();  // the previous sum has been read
      if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
      __syncthreads();
      v = parts[0];
#pragma unroll
      for (int i = 1; i < Size / 32; ++i) v += parts[i];
    }
    return v;
  }
};

}  // namespace tessera::kernels::cuda
