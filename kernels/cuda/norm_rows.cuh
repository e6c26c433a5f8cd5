// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shared by the two norms: a thread group per row, and the gradients of the weights, as partial sums over blocks of
// rows added in one order. Only for .cu files.

#include "kernels/cuda/thread_group.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/norm_blocks.hpp"

namespace tessera::kernels::cuda {

inline constexpr std::int64_t warp_channels = 512;  // up to here a row is a warp's, beyond it a block's

/// out[c] = Σ over parts in order (starting from out if accumulate), rounded once. Part p of column c is parts[p·stride
/// + c].
template <class G>
__global__ void __launch_bounds__(256) sum_partials_kernel(const float* parts, std::int64_t count, std::int64_t stride,
                                                           std::int64_t columns, G* out, bool accumulate) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (column >= columns) return;
  float sum = accumulate ? to_float(out[column]) : 0.0F;
  for (std::int64_t part = 0; part < count; ++part) sum += parts[part * stride + column];
  out[column] = rounded<G>(sum);
}

inline constexpr int weight_columns = 32, weight_lanes = 8;

/// Block (columns, rows): partial sums of 32 columns over one block of rows; each of 8 warps takes every eighth row.
/// op.sum_row(row, column, sums) adds to Op::num_sums sums; the first num_sums warps then reduce one of them each.
template <class Op>
__global__ void __launch_bounds__(weight_columns* weight_lanes)
    sum_rows_kernel(const Op op, std::int64_t rows, std::int64_t channels, std::int64_t height, float* partial) {
  constexpr int num = Op::num_sums;
  __shared__ float parts[num][weight_lanes][weight_columns + 1];
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * weight_columns + lane;
  const std::int64_t first = blockIdx.y * height, last = first + height < rows ? first + height : rows;
  float sums[num] = {};
  if (column < channels)
    for (std::int64_t row = first + warp; row < last; row += weight_lanes) op.sum_row(row, column, sums);
#pragma unroll
  for (int s = 0; s < num; ++s) parts[s][warp][lane] = sums[s];
  __syncthreads();
  if (warp >= num || column >= channels) return;
  float total = parts[warp][0][lane];
#pragma unroll
  for (int i = 1; i < weight_lanes; ++i) total += parts[warp][i][lane];
  partial[(num * static_cast<std::int64_t>(blockIdx.y) + warp) * channels + column] = total;
}

/// Sums of op over all rows into `out`, (op.channels) each, absent ones are not written, but at least one
/// is there. `workspace`: num_sums·norm_blocks·channels floats.
template <class T, class Op>
void sum_rows(const Op& op, std::int64_t rows, const TensorView (&out)[Op::num_sums], bool accumulate,
              const TensorView& workspace, StreamView stream) {
  constexpr int num = Op::num_sums;
  const std::int64_t channels = op.channels, height = norm_block_rows(rows), parts = (rows + height - 1) / height;
  TESSERA_ASSERT(workspace.nbytes() >= static_cast<std::size_t>(num * norm_blocks * channels) * sizeof(float),
                 "workspace of %zu bytes", workspace.nbytes());
  auto* const partial = static_cast<float*>(workspace.data);
  if (parts > 0) {
    const dim3 grid(blocks_for(channels, weight_columns), static_cast<unsigned>(parts));
    sum_rows_kernel<<<grid, dim3(weight_columns, weight_lanes), 0, stream_of(stream)>>>(op, rows, channels, height,
                                                                                        partial);
    check_launch("sum_rows");
  }
  for (int s = 0; s < num; ++s) {
    if (!out[s]) continue;
    dispatch_gradient_dtype<T>(out[s].dtype, [&]<class G>(G) {
      sum_partials_kernel<G><<<blocks_for(channels, 256), 256, 0, stream_of(stream)>>>(
          partial + s * channels, parts, num * channels, channels, data_of<G>(out[s]), accumulate);
      check_launch("sum_partials");
    });
  }
}

/// Calls f(integral_constant<length>, ThreadGroup) with the vector length (N or 1) and the thread group for rows of
/// `channels`.
template <int N, class F>
void by_row_shape(std::int64_t channels, bool vectors, const F& f) {
  const auto with_group = [&](auto length) {
    if (channels <= warp_channels) f(length, ThreadGroup<32>{});
    else f(length, ThreadGroup<group_block>{});
  };
  if (vectors && channels % N == 0) with_group(std::integral_constant<int, N>{});
  else with_group(std::integral_constant<int, 1>{});
}

template <int N, class Group, class Op>
__global__ void __launch_bounds__(group_block) rows_kernel(const Op op, std::int64_t rows) {
  const std::int64_t row = Group::index();
  if (row < rows) op.template run<N, Group>(row);  // whole groups
}

/// Launches op.run<N, Group>(row) for every row of `channels` elements of T; vectorized if alignment allows.
template <class T, class Op>
void for_rows(const Op& op, std::int64_t rows, std::int64_t channels, bool vectors, StreamView stream,
              const char* name) {
  if (rows == 0) return;
  by_row_shape<vector_length<T>>(channels, vectors, [&]<class Group>(auto length, Group) {
    rows_kernel<decltype(length)::value, Group, Op>
        <<<blocks_for(rows, Group::per_block), group_block, 0, stream_of(stream)>>>(op, rows);
    check_launch(name);
  });
}

}  // namespace tessera::kernels::cuda
