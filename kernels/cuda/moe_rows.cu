// SPDX-License-Identifier: Apache-2.0
// Moves rows of tokens to rows of experts and back.
#include "kernels/cuda/norm_rows.cuh"
#include "kernels/cuda/ops.hpp"
#include "kernels/moe.hpp"

namespace tessera::kernels::cuda {
namespace {

/// y[row] = x[token of row].
template <class T>
struct Gather {
  const T* x;
  T* y;
  const std::int32_t* slot_of;
  std::int64_t columns, k;
  template <int N>
  __device__ void run(std::int64_t at) const {  // a vector stays in a row: columns is a multiple of N
    float v[N];
    load<N>(x + slot_of[at / columns] / k * columns + at % columns, v);
    store<N>(y + at, v);
  }
};

/// y[token] (+)= Σ over k, in order, of weight·x[row].
template <class T>
struct Combine {
  const T* x;
  const float* weights;  // or null: 1
  const std::int32_t* row_of;
  T* y;
  std::int64_t columns, k;
  bool accumulate;
  template <int N>
  __device__ void run(std::int64_t at) const {
    const std::int64_t token = at / columns, c = at % columns;
    float sum[N], v[N];
    if (accumulate) load<N>(y + at, sum);
    for (std::int64_t slot = token * k; slot < (token + 1) * k; ++slot) {
      const float w = weights ? weights[slot] : 1.0F;
      load<N>(x + row_of[slot] * columns + c, v);
      const bool fresh = !accumulate && slot == token * k;
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] = fresh ? mul(w, v[i]) : fused(w, v[i], sum[i]);
    }
    store<N>(y + at, sum);
  }
};

template <class T>
struct Weigh {
  T *a, *b;
  const float* weights;
  const std::int32_t* slot_of;
  float* dweights;
  std::int64_t columns;

  template <int N, class Group>
  __device__ void run(std::int64_t row) const {
    const Weigh& w = *this;
    constexpr int step = group_block / Group::per_block * N;
    T *const a = w.a + row * w.columns, *const b = w.b + row * w.columns;
    const std::int64_t slot = w.slot_of[row];
    const float weight = w.weights[slot];
    float dot = 0;
    for (std::int64_t c = Group::lane() * N; c < w.columns; c += step) {
      float x[N], y[N];
      load<N>(a + c, x);
      load<N>(b + c, y);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        dot = fused(x[i], y[i], dot);
        x[i] = mul(x[i], weight);
        y[i] = mul(y[i], weight);
      }
      store<N>(a + c, x);
      store<N>(b + c, y);
    }
    dot = Group::sum(dot);
    if (Group::lane() == 0) w.dweights[slot] = dot;
  }
};

/// Rows times their weights.
template <class T>
struct Scale {
  T* a;
  const float* weights;
  const std::int32_t* slot_of;
  std::int64_t columns;

  template <int N, class Group>
  __device__ void run(std::int64_t row) const {
    constexpr int step = group_block / Group::per_block * N;
    const float weight = weights[slot_of[row]];
    for (std::int64_t c = Group::lane() * N; c < columns; c += step) {
      float x[N];
      load<N>(a + row * columns + c, x);
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] = mul(x[i], weight);
      store<N>(a + row * columns + c, x);
    }
  }
};

/// Not a real pointer: an unaligned address, used if vectors would cross rows.
const void* no_vectors_if(bool odd) { return odd ? reinterpret_cast<const void*>(1) : nullptr; }

}  // namespace

void gather_rows(const TensorView& x, const Dispatch& dispatch, const TensorView& y, StreamView stream) {
  const std::int64_t columns = x.shape[1], k = x.shape[0] > 0 ? y.shape[0] / x.shape[0] : 1;
  dispatch_dtype(x.dtype, [&]<class T>(T) {
    constexpr int n = vector_length<T>;
    for_each<n>(Gather<T>{data_of<T>(x), data_of<T>(y), data_of<std::int32_t>(dispatch.slots), columns, k}, y.numel(),
                {x.data, y.data, no_vectors_if(columns % n != 0)}, stream, "gather_rows");
  });
}

void combine_rows(const CombineArgs& args, StreamView stream) {
  const std::int64_t columns = args.x.shape[1], k = args.y.shape[0] > 0 ? args.x.shape[0] / args.y.shape[0] : 1;
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    constexpr int n = vector_length<T>;
    const Combine<T> op{data_of<T>(args.x),
                        args.weights ? args.weights.as<float>() : nullptr,
                        data_of<std::int32_t>(args.dispatch.rows),
                        data_of<T>(args.y),
                        columns,
                        k,
                        args.accumulate};
    for_each<n>(op, args.y.numel(), {args.x.data, args.y.data, no_vectors_if(columns % n != 0)}, stream,
                "combine_rows");
  });
}

void combine_weights_backward(const CombineWeightsBackwardArgs& args, StreamView stream) {
  const std::int64_t rows = args.a.shape[0], columns = args.a.shape[1];
  dispatch_dtype(args.a.dtype, [&]<class T>(T) {
    if (!args.b) {
      const Scale<T> s{data_of<T>(args.a), args.weights.as<float>(), data_of<std::int32_t>(args.dispatch.slots),
                       columns};
      return for_rows<T>(s, rows, columns, aligned16(s.a), stream, "combine_weights_backward");
    }
    const Weigh<T> w{data_of<T>(args.a),        data_of<T>(args.b),
                     args.weights.as<float>(),  data_of<std::int32_t>(args.dispatch.slots),
                     args.dweights.as<float>(), columns};
    for_rows<T>(w, rows, columns, aligned16(w.a) && aligned16(w.b), stream, "combine_weights_backward");
  });
}

}  // namespace tessera::kernels::cuda
