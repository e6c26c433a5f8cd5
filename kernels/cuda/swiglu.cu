// SPDX-License-Identifier: Apache-2.0
// SwiGLU and GeGLU on a device: one pass; backward may write over what it reads. Rows may be columns of a wider matrix:
// the grid has rows in x and vectors of a row in y, so that no thread divides an index.
#include "kernels/cuda/activations.hpp"
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/vector.cuh"
#include "kernels/row_stride.hpp"
#include "kernels/swiglu.hpp"

namespace tessera::kernels::cuda {
namespace {

/// Elements (row, column) of gate and up are `stride` apart by rows, those of y `stride_y`.
template <auto Product, class T>
struct GatedForward {
  const T *gate, *up;
  T* y;
  std::int64_t stride, stride_y;
  template <int N>
  __device__ void run(std::int64_t row, std::int64_t column) const {
    float g[N], u[N];
    load<N>(gate + row * stride + column, g);
    load<N>(up + row * stride + column, u);
#pragma unroll
    for (int i = 0; i < N; ++i) g[i] = Product(g[i], u[i]);
    store<N>(y + row * stride_y + column, g);
  }
};

template <auto Slopes, class T>
struct GatedBackward {
  const T *gate, *up, *dy;
  T *dgate, *dup;
  std::int64_t stride, stride_dy;
  template <int N>
  __device__ void run(std::int64_t row, std::int64_t column) const {
    const std::int64_t at = row * stride + column;
    float g[N], u[N], d[N];
    load<N>(gate + at, g);
    load<N>(up + at, u);
    load<N>(dy + row * stride_dy + column, d);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const SwigluSlopes slopes = Slopes(g[i], u[i], d[i]);
      g[i] = slopes.gate;
      u[i] = slopes.up;
    }
    store<N>(dgate + at, g);
    store<N>(dup + at, u);
  }
};

template <int N, class Op>
__global__ void __launch_bounds__(256) columns_kernel(const Op op, std::int64_t columns) {
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * 256 + threadIdx.x) * N;
  if (column < columns) op.template run<N>(blockIdx.x, column);
}

/// columns_kernel of a decode pass.
template <int N, class Op>
__global__ void __launch_bounds__(256) early_columns_kernel(const Op op, std::int64_t columns) {
  await_kernel_before();
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * 256 + threadIdx.x) * N;
  if (column < columns) op.template run<N>(blockIdx.x, column);
}

/// Launches op for every element; vectors of N if every pointer and every row is aligned.
template <class T, class Op>
void for_columns(const Op& op, std::int64_t rows, std::int64_t columns, std::initializer_list<std::int64_t> strides,
                 std::initializer_list<const void*> pointers, StreamView stream, const char* name) {
  if (rows * columns == 0) return;
  constexpr int n = vector_length<T>;
  bool vectors = columns % n == 0;
  for (const std::int64_t stride : strides) vectors = vectors && stride % n == 0;
  for (const void* p : pointers) vectors = vectors && aligned16(p);
  const auto grid = [&](std::int64_t each) {
    const unsigned down = blocks_for(columns, 256 * each);
    TESSERA_ASSERT(down < 65536, "%ld columns", columns);
    return dim3(blocks_for(rows, 1), down);
  };
  if (rows <= most_early_rows) {
    if (vectors) launch_dependent(early_columns_kernel<n, Op>, {grid(n), 256, stream_of(stream), name}, op, columns);
    else launch_dependent(early_columns_kernel<1, Op>, {grid(1), 256, stream_of(stream), name}, op, columns);
    return;
  }
  if (vectors) columns_kernel<n><<<grid(n), 256, 0, stream_of(stream)>>>(op, columns);
  else columns_kernel<1><<<grid(1), 256, 0, stream_of(stream)>>>(op, columns);
  check_launch(name);
}

/// The same elements as one row.
template <class Op>
struct Contiguous {
  Op op;
  template <int N>
  __device__ void run(std::int64_t at) const {
    op.template run<N>(0, at);
  }
};

template <auto Product, class T>
void forward(const SwigluForwardArgs& args, StreamView stream) {
  GatedForward<Product, T> op{data_of<T>(args.gate), data_of<T>(args.up), data_of<T>(args.y), args.stride,
                              args.stride_y};
  if (op.stride == 0 && op.stride_y == 0)
    return for_each<vector_length<T>>(Contiguous<GatedForward<Product, T>>{op}, args.gate.numel(),
                                      {args.gate.data, args.up.data, args.y.data}, stream, "swiglu_forward");
  const std::int64_t columns = args.gate.shape[1];
  op.stride = row_stride(args.gate, args.stride);
  op.stride_y = row_stride(args.y, args.stride_y);
  for_columns<T>(op, args.gate.shape[0], columns, {op.stride, op.stride_y}, {args.gate.data, args.up.data, args.y.data},
                 stream, "swiglu_forward");
}

template <auto Slopes, class T>
void backward(const SwigluBackwardArgs& args, StreamView stream) {
  GatedBackward<Slopes, T> op{data_of<T>(args.gate),
                              data_of<T>(args.up),
                              data_of<T>(args.dy),
                              data_of<T>(args.dgate),
                              data_of<T>(args.dup),
                              args.stride,
                              0};
  const std::initializer_list<const void*> pointers{args.gate.data, args.up.data, args.dy.data, args.dgate.data,
                                                    args.dup.data};
  if (op.stride == 0)
    return for_each<vector_length<T>>(Contiguous<GatedBackward<Slopes, T>>{op}, args.gate.numel(), pointers, stream,
                                      "swiglu_backward");
  const std::int64_t columns = op.stride_dy = args.gate.shape[1];
  for_columns<T>(op, args.gate.shape[0], columns, {op.stride}, pointers, stream, "swiglu_backward");
}

}  // namespace

void swiglu_forward(const SwigluForwardArgs& args, StreamView stream) {
  dispatch_dtype(args.gate.dtype, [&]<class T>(T) {
    if (args.activation == GateActivation::gelu) forward<geglu, T>(args, stream);
    else forward<swiglu, T>(args, stream);
  });
}

void swiglu_backward(const SwigluBackwardArgs& args, StreamView stream) {
  dispatch_dtype(args.gate.dtype, [&]<class T>(T) {
    if (args.activation == GateActivation::gelu) backward<geglu_slopes, T>(args, stream);
    else backward<swiglu_slopes, T>(args, stream);
  });
}

}  // namespace tessera::kernels::cuda
