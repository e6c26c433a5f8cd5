// SPDX-License-Identifier: Apache-2.0
// Biases of groups on a device. A thread group finds the group of its row in the offsets; a gradient is a block of 32
// columns of one group, of which each of 16 warps adds every 16th row in order, and then the warps are added in order.
#include "kernels/cuda/group_bias.hpp"

#include "kernels/cuda/norm_rows.cuh"

namespace tessera::kernels::cuda {
namespace {

/// The group of a row: the last that begins at or before it and is not empty.
__device__ inline std::int64_t group_of(const std::int32_t* offsets, std::int64_t groups, std::int64_t row) {
  if (offsets == nullptr) return 0;
  std::int64_t low = 0, high = groups;  // offsets[low] <= row < offsets[high]
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    if (offsets[middle] <= row) low = middle;
    else high = middle;
  }
  return low;
}

template <class T, class Y>
struct AddBias {
  const std::int32_t* offsets;
  const T* bias;
  Y* y;
  std::int64_t groups, columns;
  template <int N, class Group>
  __device__ void run(std::int64_t row) const {
    constexpr int step = group_block / Group::per_block * N;
    const T* const b = bias + group_of(offsets, groups, row) * columns;
    for (std::int64_t c = Group::lane() * N; c < columns; c += step) {
      float v[N], w[N];
      load<N>(y + row * columns + c, v);
      load<N>(b + c, w);
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] = add(v[i], w[i]);
      store<N>(y + row * columns + c, v);
    }
  }
};

template <class T>
struct BiasWeights {
  const std::int32_t *offsets, *slot_of;
  const T *bias, *dy;
  float* dweights;
  std::int64_t groups, columns;
  template <int N, class Group>
  __device__ void run(std::int64_t row) const {
    constexpr int step = group_block / Group::per_block * N;
    const T* const b = bias + group_of(offsets, groups, row) * columns;
    float dot = 0;
    for (std::int64_t c = Group::lane() * N; c < columns; c += step) {
      float v[N], w[N];
      load<N>(dy + row * columns + c, v);
      load<N>(b + c, w);
#pragma unroll
      for (int i = 0; i < N; ++i) dot = fused(v[i], w[i], dot);
    }
    dot = Group::sum(dot);
    if (Group::lane() == 0) dweights[slot_of[row]] += dot;
  }
};

constexpr int bias_lanes = 32, bias_warps = 16;

template <class T, class G>
struct BiasGradient {
  const std::int32_t *offsets, *slot_of;
  const T* dy;
  const float* weights;  // or null: 1
  G* dbias;
  std::int64_t columns;
  bool accumulate;
};

template <class T, class G>
__global__ void __launch_bounds__(bias_lanes* bias_warps) group_bias_gradient_kernel(const BiasGradient<T, G> of) {
  __shared__ float parts[bias_warps][bias_lanes + 1];
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * bias_lanes + lane, group = blockIdx.y;
  float sum = 0;
  if (column < of.columns)
    for (std::int64_t row = of.offsets[group] + warp; row < of.offsets[group + 1]; row += bias_warps)
      sum = fused(of.weights != nullptr ? of.weights[of.slot_of[row]] : 1.0F,
                  to_float(of.dy[row * of.columns + column]), sum);
  parts[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= of.columns) return;
  G* const out = of.dbias + group * of.columns + column;
  float total = of.accumulate ? to_float(*out) : 0.0F;
#pragma unroll
  for (int i = 0; i < bias_warps; ++i) total += parts[i][lane];
  *out = rounded<G>(total);
}

const std::int32_t* integers_of(const TensorView& view) { return view ? data_of<std::int32_t>(view) : nullptr; }

}  // namespace

void add_group_bias(const AddGroupBiasArgs& args, StreamView stream) {
  dispatch_dtype(args.bias.dtype, [&]<class T>(T) {
    dispatch_gradient_dtype<T>(args.y.dtype, [&]<class Y>(Y) {
      const AddBias<T, Y> op{integers_of(args.offsets), data_of<T>(args.bias), data_of<Y>(args.y), args.bias.shape[0],
                             args.y.shape[1]};
      for_rows<T>(op, args.y.shape[0], args.y.shape[1], aligned16(op.bias) && aligned16(op.y), stream,
                  "add_group_bias");
    });
  });
}

void group_bias_gradient(const GroupBiasGradientArgs& args, StreamView stream) {
  const std::int64_t columns = args.dy.shape[1], groups = args.dbias.shape[0];
  if (columns == 0 || groups == 0) return;
  dispatch_dtype(args.dy.dtype, [&]<class T>(T) {
    dispatch_gradient_dtype<T>(args.dbias.dtype, [&]<class G>(G) {
      const BiasGradient<T, G> of{integers_of(args.dispatch.offsets),
                                  integers_of(args.dispatch.slots),
                                  data_of<T>(args.dy),
                                  args.weights ? args.weights.as<float>() : nullptr,
                                  data_of<G>(args.dbias),
                                  columns,
                                  args.accumulate};
      const dim3 grid(blocks_for(columns, bias_lanes), static_cast<unsigned>(groups));
      group_bias_gradient_kernel<T, G><<<grid, dim3(bias_lanes, bias_warps), 0, stream_of(stream)>>>(of);
      check_launch("group_bias_gradient");
    });
  });
}

void add_group_bias_weights(const GroupBiasWeightsArgs& args, StreamView stream) {
  dispatch_dtype(args.dy.dtype, [&]<class T>(T) {
    const BiasWeights<T> op{integers_of(args.dispatch.offsets),
                            integers_of(args.dispatch.slots),
                            data_of<T>(args.bias),
                            data_of<T>(args.dy),
                            args.dweights.as<float>(),
                            args.bias.shape[0],
                            args.dy.shape[1]};
    for_rows<T>(op, args.dy.shape[0], args.dy.shape[1], aligned16(op.bias) && aligned16(op.dy), stream,
                "add_group_bias_weights");
  });
}

}  // namespace tessera::kernels::cuda
