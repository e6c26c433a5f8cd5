// SPDX-License-Identifier: Apache-2.0
// Column sums and addition. A block computes 16 columns, so that a matrix of 2,048 columns fills a GPU; 64 groups of
// its threads add every 64th row in order, and a fixed tree adds the groups.
#include "kernels/bias.hpp"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/vector.cuh"
#include "kernels/row_stride.hpp"

namespace tessera::kernels::cuda {
namespace {

constexpr int sum_columns = 16, sum_lanes = 64;

template <class T, class G>
__global__ void __launch_bounds__(sum_columns* sum_lanes)
    column_sums_kernel(const T* x, std::int64_t rows, std::int64_t stride, std::int64_t columns, G* out,
                       bool accumulate) {
  __shared__ float parts[sum_lanes][sum_columns + 1];
  const int lane = static_cast<int>(threadIdx.x), group = static_cast<int>(threadIdx.y);
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * sum_columns + lane;
  float sum = 0;
  if (column < columns) {
#pragma unroll 8
    for (std::int64_t row = group; row < rows; row += sum_lanes) sum += to_float(x[row * stride + column]);
  }
  parts[group][lane] = sum;
  __syncthreads();
#pragma unroll
  for (int width = sum_lanes / 2; width > 0; width /= 2) {
    if (group < width) parts[group][lane] += parts[group + width][lane];
    __syncthreads();
  }
  if (group != 0 || column >= columns) return;
  const float total = parts[0][lane];
  out[column] = rounded<G>(accumulate ? to_float(out[column]) + total : total);
}

}  // namespace

void bias_backward(const BiasBackwardArgs& args, StreamView stream) {
  const std::int64_t rows = args.dy.shape[0], columns = args.dy.shape[1], stride = row_stride(args.dy, args.stride);
  if (columns == 0) return;
  dispatch_dtype(args.dy.dtype, [&]<class T>(T) {
    dispatch_gradient_dtype<T>(args.dbias.dtype, [&]<class G>(G) {
      column_sums_kernel<T, G>
          <<<blocks_for(columns, sum_columns), dim3(sum_columns, sum_lanes), 0, stream_of(stream)>>>(
              data_of<T>(args.dy), rows, stride, columns, data_of<G>(args.dbias), args.accumulate);
      check_launch("bias_backward");
    });
  });
}

void add(const AddArgs& args, StreamView stream) {
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    for_each<vector_length<T>>(Binary<sum, T>{data_of<T>(args.x), data_of<T>(args.y), data_of<T>(args.y)},
                               args.x.numel(), {args.x.data, args.y.data}, stream, "add");
  });
}

}  // namespace tessera::kernels::cuda
