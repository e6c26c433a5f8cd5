// SPDX-License-Identifier: Apache-2.0
// The index of the largest element of a row: a block per row.
#include "kernels/argmax.hpp"

#include "kernels/cuda/argmax.hpp"
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/vector.cuh"

namespace tessera::kernels::cuda {
namespace {

constexpr int argmax_threads = 1024, unrolled = 4;
constexpr std::int32_t none = 0x7fffffff;

/// The largest so far, its index, and a sum that is not 0 if an element is not finite.
struct Largest {
  float value = -INFINITY;
  std::int32_t index = none;
  float probe = 0;
  __device__ void add(const Largest& other) {
    probe += other.probe;
    if (other.value > value || (other.value == value && other.index < index)) value = other.value, index = other.index;
  }
};

__device__ __forceinline__ Largest largest_of_warp(Largest of) {
#pragma unroll
  for (int width = 16; width > 0; width /= 2) {
    Largest other;
    other.value = __shfl_xor_sync(0xffffffffu, of.value, width);
    other.index = __shfl_xor_sync(0xffffffffu, of.index, width);
    other.probe = __shfl_xor_sync(0xffffffffu, of.probe, width);
    of.add(other);
  }
  return of;
}

/// Rows are read by vectors of N.
template <int N>
__global__ void __launch_bounds__(argmax_threads) argmax_kernel(const float* x, std::int64_t width, std::int32_t* out) {
  __shared__ float values[argmax_threads / 32];
  __shared__ float probes[argmax_threads / 32];
  __shared__ std::int32_t indices[argmax_threads / 32];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const float* const row = x + static_cast<std::int64_t>(blockIdx.x) * width;
  await_kernel_before();
  Largest mine;
  for (std::int64_t first = N * thread; first < width; first += N * argmax_threads * unrolled) {
    float v[unrolled][N];
#pragma unroll
    for (int i = 0; i < unrolled; ++i) {
      const std::int64_t at = first + i * N * argmax_threads;
      load<N>(row + (at < width ? at : first), v[i]);  // again: it is not larger than itself
    }
#pragma unroll
    for (int i = 0; i < unrolled; ++i)
#pragma unroll
      for (int e = 0; e < N; ++e) {
        mine.probe += 0 * v[i][e];
        if (v[i][e] > mine.value)
          mine.value = v[i][e], mine.index = static_cast<std::int32_t>(first + i * N * argmax_threads + e);
      }
  }
  mine = largest_of_warp(mine);
  if (lane == 0) values[warp] = mine.value, indices[warp] = mine.index, probes[warp] = mine.probe;
  __syncthreads();
  if (warp != 0) return;
  Largest all;
  all.value = values[lane];
  all.index = indices[lane];
  all.probe = probes[lane];
  all = largest_of_warp(all);
  if (lane == 0) out[blockIdx.x] = all.probe == 0 ? all.index : -1;
}

}  // namespace

void argmax(const ArgmaxArgs& args, StreamView stream) {
  const std::int64_t width = args.x.shape[1];
  const float* const x = data_of<float>(args.x);
  std::int32_t* const out = data_of<std::int32_t>(args.out);
  const LaunchShape shape{blocks_for(args.x.shape[0], 1), argmax_threads, stream_of(stream), "argmax"};
  if (width % 4 == 0 && aligned16(x)) launch_dependent(argmax_kernel<4>, shape, x, width, out);
  else launch_dependent(argmax_kernel<1>, shape, x, width, out);
}

}  // namespace tessera::kernels::cuda
