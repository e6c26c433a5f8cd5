// SPDX-License-Identifier: Apache-2.0
// Y = X·Wᵀ for up to 16 rows of X. Blocks have a few columns of Y each, whose rows of W are read once, 16 bytes a lane;
// the warps of a block share K, and their sums are added in the warps' order. Bound by reading W.
#include "kernels/cuda/gemm_few_rows.hpp"

#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/thread_group.cuh"
#include "kernels/cuda/vector.cuh"

namespace tessera::kernels::cuda {
namespace {

template <class T, class C>
struct FewRowsCall {
  const T *x, *w, *bias;
  const C* old;  // what beta multiplies, pitched as y
  C* y;
  std::int64_t rows, columns, depth, x_pitch, w_pitch, y_pitch;
  float alpha, beta;

  __device__ void write(std::int64_t row, std::int64_t column, float sum) const {
    const std::int64_t at = row * y_pitch + column;
    float v = alpha * sum;
    if (beta != 0) v = fmaf(beta, to_float(old[at]), v);
    if (bias != nullptr) v += to_float(bias[column]);
    y[at] = rounded<C>(v);
  }
};

/// Warps of a block, tiles of 8 columns of Y of each, steps of 32 along K whose loads are in flight at once.
template <int Warps_, int Tiles_, int Steps_>
struct FewRowsShape {
  static constexpr int warps = Warps_, tiles = Tiles_, steps = Steps_, columns = 8 * tiles;
};
using NarrowFewRows = FewRowsShape<16, 1, 4>;  // few columns: more of a multiprocessor's loads are along K
using WideFewRows = FewRowsShape<8, 2, 3>;

/// Tensor cores, mma.m16n8k16: the 16 rows are those of X, the 8 columns are rows of W. A lane's 16 bytes are eight
/// adjacent elements, where the instruction's operands are pairs 8 apart: the elements of a step of 32 along K are
/// summed in another order, the same for X and W.
template <class S, int RowTiles, class T, class C>
__global__ void __launch_bounds__(32 * S::warps) few_rows_kernel(const FewRowsCall<T, C> c) {
  await_kernel_before();
  __shared__ float sums[S::warps][8 * RowTiles][S::columns];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32, group = lane / 4,
            quad = lane % 4;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * S::columns;
  float acc[S::tiles][4] = {};
  for (std::int64_t k0 = warp * 32; k0 < c.depth; k0 += 32 * S::warps * S::steps) {
    uint4 x[S::steps][RowTiles], w[S::steps][S::tiles];
#pragma unroll
    for (int s = 0; s < S::steps; ++s) {
      const std::int64_t k = k0 + s * 32 * S::warps + 8 * quad;
#pragma unroll
      for (int i = 0; i < S::tiles; ++i) {
        const std::int64_t column = first + 8 * i + group;
        w[s][i] = k < c.depth && column < c.columns ? load_once(c.w + column * c.w_pitch + k) : uint4{0, 0, 0, 0};
      }
#pragma unroll
      for (int i = 0; i < RowTiles; ++i) {
        const std::int64_t row = 8 * i + group;
        x[s][i] = k < c.depth && row < c.rows ? *reinterpret_cast<const uint4*>(c.x + row * c.x_pitch + k)
                                              : uint4{0, 0, 0, 0};
      }
    }
#pragma unroll
    for (int s = 0; s < S::steps; ++s) {
      const uint4 low = x[s][0], high = RowTiles == 2 ? x[s][RowTiles - 1] : uint4{0, 0, 0, 0};
      const std::uint32_t a[2][4] = {{low.x, high.x, low.y, high.y}, {low.z, high.z, low.w, high.w}};
#pragma unroll
      for (int i = 0; i < S::tiles; ++i) {
        multiply_add<T>(acc[i], a[0], w[s][i].x, w[s][i].y);
        multiply_add<T>(acc[i], a[1], w[s][i].z, w[s][i].w);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < S::tiles; ++i)
#pragma unroll
    for (int e = 0; e < 2 * RowTiles; ++e) sums[warp][group + 8 * (e / 2)][8 * i + 2 * quad + e % 2] = acc[i][e];
  __syncthreads();
  for (int i = thread; i < 8 * RowTiles * S::columns; i += 32 * S::warps) {
    const int row = i / S::columns, column = i % S::columns;
    if (row >= c.rows || first + column >= c.columns) continue;
    float sum = 0;
#pragma unroll
    for (int other = 0; other < S::warps; ++other) sum += sums[other][row][column];
    c.write(row, first + column, sum);
  }
}

/// Columns of Y of a warp: two read x once for both; with 16 rows their sums do not fit into the registers of sm_80.
template <int Rows>
inline constexpr int fp32_columns = Rows > 4 ? 1 : 2;

/// fp32: a warp per fp32_columns of Y, for up to Rows rows.
template <int Rows>
__global__ void __launch_bounds__(group_block) few_rows_fp32_kernel(const FewRowsCall<float, float> c) {
  await_kernel_before();
  constexpr int columns = fp32_columns<Rows>;
  const std::int64_t first = ThreadGroup<32>::index() * columns;
  if (first >= c.columns) return;
  const int lane = ThreadGroup<32>::lane();
  float acc[Rows][columns] = {};
  for (std::int64_t k = 4 * lane; k < c.depth; k += 128) {
    float w[columns][4];
#pragma unroll
    for (int j = 0; j < columns; ++j) {
      const bool exists = first + j < c.columns;
      const uint4 raw = exists ? load_once(c.w + (first + j) * c.w_pitch + k) : uint4{0, 0, 0, 0};
      memcpy(w[j], &raw, 16);
    }
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      if (r >= c.rows) break;
      float x[4];
      load<4>(c.x + r * c.x_pitch + k, x);
#pragma unroll
      for (int j = 0; j < columns; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) acc[r][j] = fmaf(x[e], w[j][e], acc[r][j]);
    }
  }
#pragma unroll
  for (int r = 0; r < Rows; ++r)
#pragma unroll
    for (int j = 0; j < columns; ++j) {
      const float sum = warp_sum(acc[r][j]);
      if (lane == 0 && r < c.rows && first + j < c.columns) c.write(r, first + j, sum);
    }
}

template <int Rows>
void launch_fp32(const FewRowsCall<float, float>& c, StreamView stream) {
  const LaunchShape shape{blocks_for(c.columns, fp32_columns<Rows> * ThreadGroup<32>::per_block), group_block,
                          stream_of(stream), "gemm of few rows"};
  launch_dependent(few_rows_fp32_kernel<Rows>, shape, c);
}

template <class S, class T, class C>
void launch_16bit(const FewRowsCall<T, C>& c, StreamView stream) {
  const LaunchShape shape{blocks_for(c.columns, S::columns), 32 * S::warps, stream_of(stream), "gemm of few rows"};
  if (c.rows <= 8) launch_dependent(few_rows_kernel<S, 1, T, C>, shape, c);
  else launch_dependent(few_rows_kernel<S, 2, T, C>, shape, c);
}

constexpr std::int64_t most_narrow_columns = 4096;

template <class T, class C>
void launch(const FewRowsCall<T, C>& c, StreamView stream) {
  if constexpr (sizeof(T) == 2) {
    if (c.columns <= most_narrow_columns) launch_16bit<NarrowFewRows>(c, stream);
    else launch_16bit<WideFewRows>(c, stream);
  } else {
    if (c.rows == 1) launch_fp32<1>(c, stream);
    else if (c.rows <= 4) launch_fp32<4>(c, stream);
    else launch_fp32<16>(c, stream);
  }
}

}  // namespace

void gemm_few_rows(const GemmArgs& args, StreamView stream) {
  const GemmPlan plan = plan_gemm(args);
  dispatch_dtype(plan.operands, [&]<class T>(T) {
    dispatch_gradient_dtype<T>(plan.result, [&]<class C>(C) {
      launch<T, C>({.x = data_of<T>(args.a),
                    .w = data_of<T>(args.b),
                    .bias = args.bias ? data_of<T>(args.bias) : nullptr,
                    .old = data_of<C>(args.addend ? args.addend : args.c),
                    .y = data_of<C>(args.c),
                    .rows = plan.n,
                    .columns = plan.m,
                    .depth = plan.k,
                    .x_pitch = plan.second_pitch,
                    .w_pitch = plan.first_pitch,
                    .y_pitch = plan.result_pitch,
                    .alpha = static_cast<float>(args.alpha),
                    .beta = static_cast<float>(args.beta)},
                   stream);
    });
  });
}

}  // namespace tessera::kernels::cuda
