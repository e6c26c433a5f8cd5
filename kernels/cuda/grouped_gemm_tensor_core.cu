// SPDX-License-Identifier: Apache-2.0
// Grouped GEMM by mma.m16n8k16: a block computes a tile of 128×128 of the result, each of its four warps 64×64 in
// registers; tiles of the operands, depth 64, are loaded by cp.async two steps ahead. Depth is added in ascending
// order, sixteen at a time.
#include "kernels/cuda/grouped_gemm_call.cuh"
#include "kernels/cuda/mma.cuh"

namespace tessera::kernels::cuda {
namespace {

constexpr int tile_side = 128, tile_depth = 64, warp_side = 64, stages = 3;
constexpr int tile_numel = tile_side * tile_depth;  // of one operand

template <class T>
constexpr std::size_t shared_bytes = sizeof(T) * (2 * stages * tile_numel);

/// Layout of an operand: its rows are the result's rows (columns, for b), or the depth.
enum class TileRows { outer, depth };

/// Loads rows [row, row + Count) and columns [column, column + Width) into a tile; the caller commits and waits.
template <int Count, int Width, class T>
__device__ __forceinline__ void load_part(T* tile, const MatrixOf<T>& from, std::int64_t row, std::int64_t column) {
  constexpr int chunks = Width / chunk_elements;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < Count * chunks; i += tile_threads) {
    const int r = i / chunks, chunk = i % chunks;
    T* const to = tile + swizzled_offset(r, chunk, Width);
    const std::int64_t first = column + chunk * chunk_elements;
    const bool row_exists = row + r < from.rows;
    const T* const source = from.first + (row + r) * from.pitch + first;
    if (from.vectors) {
      const bool exists = row_exists && first < from.columns;
      copy_async(to, exists ? source : from.first, exists);
    } else {
      for (int e = 0; e < chunk_elements; ++e)
        to[e] = row_exists && first + e < from.columns ? source[e] : rounded<T>(0.0F);
    }
  }
}

/// Depth [step·64, +64) of rows (or columns) [outer, +128).
template <TileRows Order, class T>
__device__ __forceinline__ void load_operand(T* tile, const MatrixOf<T>& from, std::int64_t outer, std::int64_t step) {
  if constexpr (Order == TileRows::outer) load_part<tile_side, tile_depth>(tile, from, outer, step * tile_depth);
  else load_part<tile_depth, tile_side>(tile, from, step * tile_depth, outer);
}

/// sums += this warp's 64×64, over the depth of a tile.
template <TileRows A, TileRows B, class T>
__device__ __forceinline__ void multiply_tiles(float (&sums)[4][8][4], const T* a_tile, const T* b_tile, int row,
                                               int column, int lane) {
#pragma unroll
  for (int k = 0; k < tile_depth; k += 16) {
    std::uint32_t a[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int first = row + 16 * i;
      if constexpr (A == TileRows::outer)
        load_matrices(a[i],
                      a_tile + swizzled_offset(first + a_row(lane), k / chunk_elements + a_chunk(lane), tile_depth));
      else
        load_matrices_transposed(
            a[i], a_tile + swizzled_offset(k + at_row(lane), first / chunk_elements + at_chunk(lane), tile_side));
    }
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      const int first = column + 8 * j;
      std::uint32_t b[4];
      if constexpr (B == TileRows::outer)
        load_matrices(b, b_tile + swizzled_offset(first + b_row(lane), k / chunk_elements + b_chunk(lane), tile_depth));
      else
        load_matrices_transposed(
            b, b_tile + swizzled_offset(k + bt_row(lane), first / chunk_elements + bt_chunk(lane), tile_side));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        multiply_add<T>(sums[i][j], a[i], b[0], b[1]);
        multiply_add<T>(sums[i][j + 1], a[i], b[2], b[3]);
      }
    }
  }
}

template <TileRows A, TileRows B, class T, class C>
__device__ __forceinline__ void make_tile(const Operands<T>& x, const ResultOf<C>& result) {
  extern __shared__ __align__(128) unsigned char shared[];
  T* const tiles = reinterpret_cast<T*>(shared);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int row = warp / 2 * warp_side, column = warp % 2 * warp_side;
  const std::int64_t steps = (x.depth + tile_depth - 1) / tile_depth;
  const auto load = [&](std::int64_t step, int stage) {
    if (step < steps) {
      load_operand<A>(tiles + 2 * stage * tile_numel, x.a, x.row, step);
      load_operand<B>(tiles + (2 * stage + 1) * tile_numel, x.b, x.column, step);
    }
    commit_copies();
  };
  float sums[4][8][4] = {};
  for (int stage = 0; stage < stages - 1; ++stage) load(stage, stage);
  int stage = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    await_copies<stages - 2>();
    __syncthreads();  // this step's tiles are loaded; those of the previous step have been read
    load(step + stages - 1, stage == 0 ? stages - 1 : stage - 1);
    multiply_tiles<A, B>(sums, tiles + 2 * stage * tile_numel, tiles + (2 * stage + 1) * tile_numel, row, column, lane);
    stage = stage + 1 == stages ? 0 : stage + 1;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t at = row + 16 * i + c_row(lane, 2 * half);
      if (at >= result.rows) continue;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const std::int64_t c = column + 8 * j + c_column(lane, 0);
        if (c < result.columns) put(result, at, c, sums[i][j][2 * half], sums[i][j][2 * half + 1]);
      }
    }
}

template <bool TransB, class T>
__global__ void __launch_bounds__(tile_threads, 2) grouped_kernel(const GroupedCall<T> c) {
  Operands<T> x;
  const ResultOf<T> result = tile_of(c, tile_side, tile_side, x);
  if (result.rows < 1) return;
  make_tile<TileRows::outer, TransB ? TileRows::outer : TileRows::depth>(x, result);
}

template <class T, class C>
__global__ void __launch_bounds__(tile_threads, 2) gradient_kernel(const GradientCall<T, C> c) {
  Operands<T> x;
  const ResultOf<C> result = tile_of(c, tile_side, tile_side, x);
  make_tile<TileRows::depth, TileRows::depth>(x, result);
}

template <class Kernel, class Call>
void launch(Kernel kernel, const Call& call, std::size_t bytes, cudaStream_t stream) {
  allow_shared(kernel, bytes);
  kernel<<<blocks_of(call, tile_side, tile_side), tile_threads, bytes, stream>>>(call);
  check_launch("grouped_gemm");
}

}  // namespace

template <class T>
void launch_grouped_tensor(const GroupedCall<T>& call, bool trans_b, cudaStream_t stream) {
  if (trans_b) launch(grouped_kernel<true, T>, call, shared_bytes<T>, stream);
  else launch(grouped_kernel<false, T>, call, shared_bytes<T>, stream);
}
template <class T, class C>
void launch_gradient_tensor(const GradientCall<T, C>& call, cudaStream_t stream) {
  launch(gradient_kernel<T, C>, call, shared_bytes<T>, stream);
}
template void launch_grouped_tensor(const GroupedCall<bf16>& call, bool trans_b, cudaStream_t stream);
template void launch_grouped_tensor(const GroupedCall<f16>& call, bool trans_b, cudaStream_t stream);
template void launch_gradient_tensor(const GradientCall<bf16, bf16>& call, cudaStream_t stream);
template void launch_gradient_tensor(const GradientCall<bf16, float>& call, cudaStream_t stream);
template void launch_gradient_tensor(const GradientCall<f16, f16>& call, cudaStream_t stream);
template void launch_gradient_tensor(const GradientCall<f16, float>& call, cudaStream_t stream);

}  // namespace tessera::kernels::cuda
