// SPDX-License-Identifier: Apache-2.0
// Dropout on a device: a thread has a group of eight columns, for which it makes eight random numbers.
#include "kernels/cuda/normals.hpp"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/vector.cuh"
#include "kernels/dropout.hpp"

namespace tessera::kernels::cuda {
namespace {

constexpr int group_columns = dropout_columns;

struct DropoutRows {
  std::int64_t rows, columns, groups;
  DropoutCounters counters;
  std::uint64_t key;
  std::uint16_t threshold;
  float scale;
  bool accumulate;
};

/// N elements from `at` on; element i has random number first + i of `words`.
template <int N, class T>
__device__ __forceinline__ void drop(const T* x, T* y, std::int64_t at, const PhiloxWords& words, int first,
                                     const DropoutRows& args) {
  float v[N], sum[N] = {};
  load<N>(x + at, v);
  if (args.accumulate) load<N>(y + at, sum);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int number = first + i;
    const float kept =
        ((words.w[number / 2] >> (number % 2 * 16)) & 0xffff) >= args.threshold ? mul(v[i], args.scale) : 0.0F;
    v[i] = args.accumulate ? add(sum[i], kept) : kept;
  }
  store<N>(y + at, v);
}

/// `whole`: every group is whole, and aligned to 16 bytes.
template <class T, bool whole>
__global__ void __launch_bounds__(256) dropout_kernel(const T* x, T* y, const DropoutRows args) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  const std::int64_t row = at / args.groups, group = at % args.groups;
  if (row >= args.rows) return;
  const PhiloxWords words =
      philox_words(args.key, static_cast<std::uint64_t>(args.counters.first + row * args.counters.step + group));
  const std::int64_t column = group * group_columns, element = row * args.columns + column;
  if constexpr (whole) {
    drop<group_columns>(x, y, element, words, 0, args);
  } else {
#pragma unroll
    for (int i = 0; i < group_columns; ++i)
      if (column + i < args.columns) drop<1>(x, y, element + i, words, i, args);
  }
}

}  // namespace

void dropout(const DropoutArgs& args, StreamView stream) {
  const std::int64_t rows = args.x.shape[0], columns = args.x.shape[1];
  if (rows * columns == 0) return;
  const DropoutScalars scalars = dropout_scalars(args.p);
  const DropoutRows of{rows,
                       columns,
                       (columns + group_columns - 1) / group_columns,
                       dropout_counters(args),
                       args.key,
                       scalars.threshold,
                       static_cast<float>(scalars.scale),
                       args.accumulate};
  const bool whole = columns % group_columns == 0 && aligned16(args.x.data) && aligned16(args.y.data);
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    const auto kernel = whole ? dropout_kernel<T, true> : dropout_kernel<T, false>;
    kernel<<<blocks_for(rows * of.groups, 256), 256, 0, stream_of(stream)>>>(data_of<T>(args.x), data_of<T>(args.y),
                                                                             of);
    check_launch("dropout");
  });
}

}  // namespace tessera::kernels::cuda
