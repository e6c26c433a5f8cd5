// SPDX-License-Identifier: Apache-2.0
// RMSNorm on a device: a warp or a block per group, which reads its row twice, the second time from cache. Backward
// computes the weight's gradient first, by columns, because dx may be dy.
#include "kernels/cuda/norm_rows.cuh"
#include "kernels/cuda/ops.hpp"
#include "kernels/rms_norm.hpp"

namespace tessera::kernels::cuda {
namespace {

template <class T>
struct Forward {
  const T *x, *weight;
  T* y;
  float* rstd;  // null: not written; apply reads it
  std::int64_t groups, channels, stride_x, stride_y;
  float eps;
  bool apply;

  template <int N, class Group>
  __device__ void run(std::int64_t index) const {
    const Forward& r = *this;
    const std::int64_t row = index / r.groups, group = index % r.groups;
    const T* const x = r.x + row * r.stride_x + group * r.channels;
    T* const y = r.y + row * r.stride_y + group * r.channels;
    constexpr int step = group_block / Group::per_block * N;
    float rstd;
    if (r.apply) {
      rstd = r.rstd[index];
    } else {
      float square = 0;
      for (std::int64_t c = Group::lane() * N; c < r.channels; c += step) {
        float v[N];
        load<N>(x + c, v);
#pragma unroll
        for (int i = 0; i < N; ++i) square = fused(v[i], v[i], square);
      }
      square = Group::sum(square);
      rstd = div(1.0F, root(add(div(square, static_cast<float>(r.channels)), r.eps)));
      if (r.rstd && Group::lane() == 0) r.rstd[index] = rstd;
    }
    for (std::int64_t c = Group::lane() * N; c < r.channels; c += step) {
      float v[N], w[N];
      load<N>(x + c, v);
      load<N>(r.weight + c, w);
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] = mul(mul(v[i], rstd), w[i]);
      store<N>(y + c, v);
    }
  }
};

template <class T>
struct Backward {
  const T *dy, *x, *weight;
  const float* rstd;
  T* dx;
  std::int64_t groups, channels, stride_dy, stride_x, stride_dx;
  bool add_to_dx;

  template <int N, class Group>
  __device__ void run(std::int64_t index) const {
    const Backward& r = *this;
    const std::int64_t row = index / r.groups, group = index % r.groups;
    const T* const x = r.x + row * r.stride_x + group * r.channels;
    const T* const dy = r.dy + row * r.stride_dy + group * r.channels;
    T* const dx = r.dx + row * r.stride_dx + group * r.channels;
    constexpr int step = group_block / Group::per_block * N;
    const float rstd = r.rstd[index];
    float dot = 0;
    for (std::int64_t c = Group::lane() * N; c < r.channels; c += step) {
      float v[N], d[N], w[N];
      load<N>(x + c, v);
      load<N>(dy + c, d);
      load<N>(r.weight + c, w);
#pragma unroll
      for (int i = 0; i < N; ++i) dot = fused(mul(d[i], w[i]), mul(v[i], rstd), dot);
    }
    const float mean = div(Group::sum(dot), static_cast<float>(r.channels));
    for (std::int64_t c = Group::lane() * N; c < r.channels; c += step) {
      float v[N], d[N], w[N], old[N];
      load<N>(x + c, v);
      load<N>(dy + c, d);
      load<N>(r.weight + c, w);
      if (r.add_to_dx) load<N>(dx + c, old);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float slope = mul(rstd, fused(d[i], w[i], -mul(mul(v[i], rstd), mean)));
        d[i] = r.add_to_dx ? old[i] + slope : slope;
      }
      store<N>(dx + c, d);
    }
  }

  /// Of the weight: Σ dy·x·rstd.
  static constexpr int num_sums = 1;
  __device__ void sum_row(std::int64_t row, std::int64_t column, float (&sums)[1]) const {
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int64_t at = g * channels + column;
      const float hat = mul(to_float(x[row * stride_x + at]), rstd[row * groups + g]);
      sums[0] = fused(to_float(dy[row * stride_dy + at]), hat, sums[0]);
    }
  }
};

std::int64_t stride_of(const TensorView& x, std::int64_t asked) { return asked > 0 ? asked : x.shape[1]; }

void run_forward(const RmsNormForwardArgs& args, bool apply, StreamView stream) {
  const std::int64_t channels = args.weight.numel();
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    constexpr int n = vector_length<T>;
    const Forward<T> r{data_of<T>(args.x),
                       data_of<T>(args.weight),
                       data_of<T>(args.y),
                       args.rstd ? args.rstd.as<float>() : nullptr,
                       args.x.shape[1] / channels,
                       channels,
                       stride_of(args.x, args.stride_x),
                       stride_of(args.y, args.stride_y),
                       static_cast<float>(args.eps),
                       apply};
    const bool vectors =
        r.stride_x % n == 0 && r.stride_y % n == 0 && aligned16(r.x) && aligned16(r.y) && aligned16(r.weight);
    for_rows<T>(r, args.x.shape[0] * r.groups, channels, vectors, stream, "rms_norm_forward");
  });
}

}  // namespace

void rms_norm_forward(const RmsNormForwardArgs& args, StreamView stream) { run_forward(args, /*apply=*/false, stream); }

void rms_norm_apply(const RmsNormApplyArgs& args, StreamView stream) {
  run_forward({.x = args.x, .weight = args.weight, .y = args.y, .rstd = args.rstd}, /*apply=*/true, stream);
}

void rms_norm_backward(const RmsNormBackwardArgs& args, StreamView stream) {
  const std::int64_t rows = args.x.shape[0], channels = args.weight.numel();
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    constexpr int n = vector_length<T>;
    const Backward<T> r{data_of<T>(args.dy),
                        data_of<T>(args.x),
                        data_of<T>(args.weight),
                        args.rstd.as<float>(),
                        data_of<T>(args.dx),
                        args.x.shape[1] / channels,
                        channels,
                        stride_of(args.dy, args.stride_dy),
                        stride_of(args.x, args.stride_x),
                        args.dx ? stride_of(args.dx, args.stride_dx) : 0,
                        args.add_to_dx};
    if (args.dweight) sum_rows<T>(r, rows, {args.dweight}, args.accumulate, args.workspace, stream);
    if (!args.dx) return;
    const bool vectors = r.stride_x % n == 0 && r.stride_dy % n == 0 && r.stride_dx % n == 0 && aligned16(r.x) &&
                         aligned16(r.dy) && aligned16(r.dx) && aligned16(r.weight);
    for_rows<T>(r, rows * r.groups, channels, vectors, stream, "rms_norm_backward");
  });
}

}  // namespace tessera::kernels::cuda
