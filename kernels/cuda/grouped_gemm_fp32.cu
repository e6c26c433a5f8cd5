// SPDX-License-Identifier: Apache-2.0
// Grouped GEMM in fp32 without tensor cores: a block of 256 threads computes a tile of 64×64, each thread 4×4 of it;
// depth is added in ascending order.
#include "kernels/cuda/grouped_gemm_call.cuh"

namespace tessera::kernels::cuda {
namespace {

constexpr int side = 64, deep = 16, fp32_threads = 256, each = 4;
constexpr int pitch = side + 4;  // of a tile, whose rows are the depth

/// A tile of 64 rows (or columns) of the result from `outer`, depth 16; ByDepth: the matrix has a row per depth.
template <bool ByDepth>
__device__ __forceinline__ void load_tile(float* tile, const MatrixOf<float>& from, std::int64_t outer,
                                          std::int64_t depth) {
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < side * deep; i += fp32_threads) {
    const int o = ByDepth ? i % side : i / deep, d = ByDepth ? i / side : i % deep;  // coalesced
    const std::int64_t row = ByDepth ? depth + d : outer + o, column = ByDepth ? outer + o : depth + d;
    tile[d * pitch + o] = row < from.rows && column < from.columns ? from.first[row * from.pitch + column] : 0.0F;
  }
}

template <bool AByDepth, bool BByDepth>
__device__ __forceinline__ void make_tile(const Operands<float>& x, const ResultOf<float>& result) {
  __shared__ float a[deep * pitch], b[deep * pitch];
  const int row = static_cast<int>(threadIdx.x) / (side / each) * each,
            column = static_cast<int>(threadIdx.x) % (side / each) * each;
  float sums[each][each] = {};
  for (std::int64_t depth = 0; depth < x.depth; depth += deep) {
    load_tile<AByDepth>(a, x.a, x.row, depth);
    load_tile<BByDepth>(b, x.b, x.column, depth);
    __syncthreads();
#pragma unroll
    for (int d = 0; d < deep; ++d) {
#pragma unroll
      for (int i = 0; i < each; ++i)
#pragma unroll
        for (int j = 0; j < each; ++j)
          sums[i][j] = fused(a[d * pitch + row + i], b[d * pitch + column + j], sums[i][j]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < each; ++i)
#pragma unroll
    for (int j = 0; j < each; j += 2)
      if (row + i < result.rows && column + j < result.columns)
        put(result, row + i, column + j, sums[i][j], sums[i][j + 1]);
}

template <bool TransB>
__global__ void __launch_bounds__(fp32_threads) grouped_kernel(const GroupedCall<float> c) {
  Operands<float> x;
  const ResultOf<float> result = tile_of(c, side, side, x);
  if (result.rows < 1) return;
  make_tile<false, !TransB>(x, result);
}

__global__ void __launch_bounds__(fp32_threads) gradient_kernel(const GradientCall<float, float> c) {
  Operands<float> x;
  const ResultOf<float> result = tile_of(c, side, side, x);
  make_tile<true, true>(x, result);
}

}  // namespace

void launch_grouped_plain(const GroupedCall<float>& call, bool trans_b, cudaStream_t stream) {
  const unsigned blocks = blocks_of(call, side, side);
  if (trans_b) grouped_kernel<true><<<blocks, fp32_threads, 0, stream>>>(call);
  else grouped_kernel<false><<<blocks, fp32_threads, 0, stream>>>(call);
  check_launch("grouped_gemm");
}

void launch_gradient_plain(const GradientCall<float, float>& call, cudaStream_t stream) {
  gradient_kernel<<<blocks_of(call, side, side), fp32_threads, 0, stream>>>(call);
  check_launch("gradients of groups");
}

}  // namespace tessera::kernels::cuda
