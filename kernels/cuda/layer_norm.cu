// SPDX-License-Identifier: Apache-2.0
// LayerNorm on a device: a warp or a block per row; mean first, then the variance around it, as on the host. Backward
// computes the gradients of weight and bias first, by columns, because dx may be dy.
#include "kernels/cuda/norm_rows.cuh"
#include "kernels/cuda/ops.hpp"
#include "kernels/layer_norm.hpp"

namespace tessera::kernels::cuda {
namespace {

/// Σ f(x[i]) over a row.
template <int N, class Group, class T, class F>
__device__ __forceinline__ float row_sum(const T* x, std::int64_t channels, const F& f) {
  constexpr int step = group_block / Group::per_block * N;
  float sum = 0;
  for (std::int64_t c = Group::lane() * N; c < channels; c += step) {
    float v[N];
    load<N>(x + c, v);
#pragma unroll
    for (int i = 0; i < N; ++i) sum += f(v[i]);
  }
  return Group::sum(sum);
}

template <class T>
struct LayerNormForward {
  const T *x, *weight, *bias;
  T* y;
  float *mean, *rstd;  // null: not written; apply reads them
  std::int64_t channels;
  float eps;
  bool apply;

  template <int N, class Group>
  __device__ void run(std::int64_t row) const {
    const LayerNormForward& r = *this;
    const T* const x = r.x + row * r.channels;
    T* const y = r.y + row * r.channels;
    constexpr int step = group_block / Group::per_block * N;
    float mean, rstd;
    if (r.apply) {
      mean = r.mean[row];
      rstd = r.rstd[row];
    } else {
      const auto n = static_cast<float>(r.channels);
      mean = div(row_sum<N, Group>(x, r.channels, [](float v) { return v; }), n);
      const float variance =
          div(row_sum<N, Group>(x, r.channels, [mean](float v) { return (v - mean) * (v - mean); }), n);
      rstd = div(1.0F, root(add(variance, r.eps)));
      if (Group::lane() == 0) {
        if (r.mean) r.mean[row] = mean;
        if (r.rstd) r.rstd[row] = rstd;
      }
    }
    for (std::int64_t c = Group::lane() * N; c < r.channels; c += step) {
      float v[N], w[N], b[N];
      load<N>(x + c, v);
      load<N>(r.weight + c, w);
      load<N>(r.bias + c, b);
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] = fused(mul(sub(v[i], mean), rstd), w[i], b[i]);
      store<N>(y + c, v);
    }
  }
};

template <class T>
struct LayerNormBackward {
  const T *dy, *x, *weight;
  const float *mean, *rstd;
  T* dx;
  std::int64_t channels;
  bool add_to_dx;

  template <int N, class Group>
  __device__ void run(std::int64_t row) const {
    const LayerNormBackward& r = *this;
    const T *const x = r.x + row * r.channels, *const dy = r.dy + row * r.channels;
    T* const dx = r.dx + row * r.channels;
    constexpr int step = group_block / Group::per_block * N;
    const float mean = r.mean[row], rstd = r.rstd[row];
    float sum = 0, sum_hat = 0;
    for (std::int64_t c = Group::lane() * N; c < r.channels; c += step) {
      float v[N], d[N], w[N];
      load<N>(x + c, v);
      load<N>(dy + c, d);
      load<N>(r.weight + c, w);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float scaled = mul(d[i], w[i]);
        sum += scaled;
        sum_hat = fused(scaled, mul(sub(v[i], mean), rstd), sum_hat);
      }
    }
    const auto n = static_cast<float>(r.channels);
    const float a = div(Group::sum(sum), n), b = div(Group::sum(sum_hat), n);
    for (std::int64_t c = Group::lane() * N; c < r.channels; c += step) {
      float v[N], d[N], w[N], old[N];
      load<N>(x + c, v);
      load<N>(dy + c, d);
      load<N>(r.weight + c, w);
      if (r.add_to_dx) load<N>(dx + c, old);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float hat = mul(sub(v[i], mean), rstd);
        const float slope = mul(rstd, sub(fused(d[i], w[i], -a), mul(hat, b)));
        d[i] = r.add_to_dx ? old[i] + slope : slope;
      }
      store<N>(dx + c, d);
    }
  }

  /// Of the weight, and of the bias.
  static constexpr int num_sums = 2;
  __device__ void sum_row(std::int64_t row, std::int64_t column, float (&sums)[2]) const {
    const std::int64_t at = row * channels + column;
    const float d = to_float(dy[at]), hat = mul(sub(to_float(x[at]), mean[row]), rstd[row]);
    sums[0] = fused(d, hat, sums[0]);
    sums[1] += d;
  }
};

float* optional(const TensorView& view) { return view ? view.as<float>() : nullptr; }

void run_forward(const LayerNormForwardArgs& args, bool apply, StreamView stream) {
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    const LayerNormForward<T> r{data_of<T>(args.x), data_of<T>(args.weight),      data_of<T>(args.bias),
                                data_of<T>(args.y), optional(args.mean),          optional(args.rstd),
                                args.x.shape[1],    static_cast<float>(args.eps), apply};
    const bool vectors = aligned16(r.x) && aligned16(r.y) && aligned16(r.weight) && aligned16(r.bias);
    for_rows<T>(r, args.x.shape[0], r.channels, vectors, stream, "layer_norm_forward");
  });
}

}  // namespace

void layer_norm_forward(const LayerNormForwardArgs& args, StreamView stream) {
  run_forward(args, /*apply=*/false, stream);
}

void layer_norm_apply(const LayerNormApplyArgs& args, StreamView stream) {
  run_forward(
      {.x = args.x, .weight = args.weight, .bias = args.bias, .y = args.y, .mean = args.mean, .rstd = args.rstd},
      /*apply=*/true, stream);
}

void layer_norm_backward(const LayerNormBackwardArgs& args, StreamView stream) {
  const std::int64_t rows = args.x.shape[0];
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    const LayerNormBackward<T> r{data_of<T>(args.dy),   data_of<T>(args.x),    data_of<T>(args.weight),
                                 args.mean.as<float>(), args.rstd.as<float>(), data_of<T>(args.dx),
                                 args.weight.numel(),   args.add_to_dx};
    if (args.dweight || args.dbias)
      sum_rows<T>(r, rows, {args.dweight, args.dbias}, args.accumulate, args.workspace, stream);
    if (!args.dx) return;
    const bool vectors = aligned16(r.x) && aligned16(r.dy) && aligned16(r.dx) && aligned16(r.weight);
    for_rows<T>(r, rows, r.channels, vectors, stream, "layer_norm_backward");
  });
}

}  // namespace tessera::kernels::cuda
