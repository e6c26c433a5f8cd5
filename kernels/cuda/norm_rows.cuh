// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shared by the two norms: a thread group per row, and the gradients of the weights, as partial sums over blocks of
// rows added in one order. Only for .cu files.

#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/thread_group.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/norm_blocks.hpp"

namespace tessera::kernels::cuda {

inline constexpr std::int64_t warp_channels = 512;  // up to here a row is a warp's, beyond it a block's

/// Elements from row to row.
inline std::int64_t stride_of(const TensorView& x, std::int64_t asked) { return asked > 0 ? asked : x.shape[1]; }

inline constexpr int partial_columns = 32, partial_lanes = 32;

/// out[c] = Σ over parts (plus out if accumulate), rounded once; each of 32 warps adds every 32nd part in order, and
/// then the warps are added in order. Part p of column c is parts[p·stride + c].
template <class G>
__global__ void __launch_bounds__(partial_columns* partial_lanes)
    sum_partials_kernel(const float* parts, std::int64_t count, std::int64_t stride, std::int64_t columns, G* out,
                        bool accumulate) {
  __shared__ float sums[partial_lanes][partial_columns];
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * partial_columns + lane;
  float sum = 0;
  if (column < columns)
    for (std::int64_t part = warp; part < count; part += partial_lanes) sum += parts[part * stride + column];
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= columns) return;
  float total = accumulate ? to_float(out[column]) : 0.0F;
#pragma unroll
  for (int i = 0; i < partial_lanes; ++i) total += sums[i][lane];
  out[column] = rounded<G>(total);
}

/// The sums of `count` parts into a gradient of elements of T.
template <class T>
void sum_partials(const float* parts, std::int64_t count, std::int64_t stride, const TensorView& out, bool accumulate,
                  StreamView stream) {
  const std::int64_t columns = out.numel();
  dispatch_gradient_dtype<T>(out.dtype, [&]<class G>(G) {
    sum_partials_kernel<G>
        <<<blocks_for(columns, partial_columns), dim3(partial_columns, partial_lanes), 0, stream_of(stream)>>>(
            parts, count, stride, columns, data_of<G>(out), accumulate);
    check_launch("sum_partials");
  });
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
  for (int s = 0; s < num; ++s)
    if (out[s]) sum_partials<T>(partial + s * channels, parts, num * channels, out[s], accumulate, stream);
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

/// rows_kernel of a decode pass.
template <int N, class Group, class Op>
__global__ void __launch_bounds__(group_block) early_rows_kernel(const Op op, std::int64_t rows) {
  await_kernel_before();
  const std::int64_t row = Group::index();
  if (row < rows) op.template run<N, Group>(row);
}

/// for_rows, launched early.
template <class T, class Op>
void for_few_rows(const Op& op, std::int64_t rows, std::int64_t channels, bool vectors, StreamView stream,
                  const char* name) {
  if (rows == 0) return;
  by_row_shape<vector_length<T>>(channels, vectors, [&]<class Group>(auto length, Group) {
    launch_dependent(early_rows_kernel<decltype(length)::value, Group, Op>,
                     {blocks_for(rows, Group::per_block), group_block, stream_of(stream), name}, op, rows);
  });
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
