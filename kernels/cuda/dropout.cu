// SPDX-License-Identifier: Apache-2.0
// Dropout on a device: a thread has a group of four columns, for which it makes four random words.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/normals.hpp"
#include "kernels/cuda/ops.hpp"
#include "kernels/dropout.hpp"

namespace tessera::kernels::cuda {
namespace {

struct DropoutRows {
  std::int64_t rows, columns, groups, first_row;
  std::uint64_t key;
  std::uint32_t threshold;
  float scale;
  bool accumulate;
};

template <class T>
__global__ void __launch_bounds__(256) dropout_kernel(const T* x, T* y, const DropoutRows args) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  const std::int64_t row = at / args.groups, group = at % args.groups;
  if (row >= args.rows) return;
  const PhiloxWords words =
      philox_words(args.key, static_cast<std::uint64_t>((args.first_row + row) * args.groups + group));
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::int64_t c = 4 * group + i;
    if (c >= args.columns) return;
    const std::int64_t element = row * args.columns + c;
    const float kept = words.w[i] >= args.threshold ? mul(to_float(x[element]), args.scale) : 0.0F;
    y[element] = rounded<T>(args.accumulate ? add(to_float(y[element]), kept) : kept);
  }
}

}  // namespace

void dropout(const DropoutArgs& args, StreamView stream) {
  const std::int64_t rows = args.x.shape[0], columns = args.x.shape[1], groups = (columns + 3) / 4;
  if (rows * columns == 0) return;
  const DropoutRows of{rows,
                       columns,
                       groups,
                       args.first_row,
                       args.key,
                       dropout_threshold(args.p),
                       static_cast<float>(1 / (1 - args.p)),
                       args.accumulate};
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    dropout_kernel<T>
        <<<blocks_for(rows * groups, 256), 256, 0, stream_of(stream)>>>(data_of<T>(args.x), data_of<T>(args.y), of);
    check_launch("dropout");
  });
}

}  // namespace tessera::kernels::cuda
