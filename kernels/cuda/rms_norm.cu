// SPDX-License-Identifier: Apache-2.0
// RMSNorm on a device: a warp or a block per group. A thread keeps the first of its vectors in registers, which is all
// of them up to 2,048 channels in 16 bits; of longer rows it reads the others again, from cache.
// rms_norm_backward.cu has the backward pass.
#include "kernels/cuda/norm_rows.cuh"
#include "kernels/cuda/ops.hpp"
#include "kernels/rms_norm.hpp"

namespace tessera::kernels::cuda {
namespace {

template <class T>
struct RmsNormForward {
  const T *x, *weight;
  T* y;
  float* rstd;  // null: not written; apply reads it
  std::int64_t groups, channels, stride_x, stride_y;
  float eps, offset;  // offset: added to the weight
  bool apply;

  template <int N, class Group>
  __device__ void run(std::int64_t index) const {
    const RmsNormForward& r = *this;
    const std::int64_t row = index / r.groups, group = index % r.groups;
    const T* const x = r.x + row * r.stride_x + group * r.channels;
    T* const y = r.y + row * r.stride_y + group * r.channels;
    constexpr int step = group_block / Group::per_block * N;
    const std::int64_t first = Group::lane() * N;
    float held[N] = {}, weights[N] = {};
    if (first < r.channels) {
      load<N>(x + first, held);
      load<N>(r.weight + first, weights);
    }
    float rstd;
    if (r.apply) {
      rstd = r.rstd[index];
    } else {
      float square = 0;
      if (first < r.channels) square = sum_of(held, square);
      for (std::int64_t c = first + step; c < r.channels; c += step) {
        float v[N];
        load<N>(x + c, v);
        square = sum_of(v, square);
      }
      square = Group::sum(square);
      rstd = div(1.0F, root(add(div(square, static_cast<float>(r.channels)), r.eps)));
      if (r.rstd && Group::lane() == 0) r.rstd[index] = rstd;
    }
    if (first < r.channels) r.write(y + first, held, weights, rstd);
    for (std::int64_t c = first + step; c < r.channels; c += step) {
      float v[N], w[N];
      load<N>(x + c, v);
      load<N>(r.weight + c, w);
      r.write(y + c, v, w, rstd);
    }
  }

 private:
  template <int N>
  __device__ static float sum_of(const float (&v)[N], float square) {
#pragma unroll
    for (int i = 0; i < N; ++i) square = fused(v[i], v[i], square);
    return square;
  }
  template <int N>
  __device__ void write(T* y, const float (&v)[N], const float (&w)[N], float rstd) const {
    float result[N];
#pragma unroll
    for (int i = 0; i < N; ++i) result[i] = mul(mul(v[i], rstd), add(w[i], offset));
    store<N>(y, result);
  }
};

void run_forward(const RmsNormForwardArgs& args, bool apply, StreamView stream) {
  const std::int64_t channels = args.weight.numel();
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    constexpr int n = vector_length<T>;
    const RmsNormForward<T> r{data_of<T>(args.x),
                              data_of<T>(args.weight),
                              data_of<T>(args.y),
                              args.rstd ? args.rstd.as<float>() : nullptr,
                              args.x.shape[1] / channels,
                              channels,
                              stride_of(args.x, args.stride_x),
                              stride_of(args.y, args.stride_y),
                              static_cast<float>(args.eps),
                              static_cast<float>(args.weight_offset),
                              apply};
    const bool vectors =
        r.stride_x % n == 0 && r.stride_y % n == 0 && aligned16(r.x) && aligned16(r.y) && aligned16(r.weight);
    const std::int64_t rows = args.x.shape[0] * r.groups;
    if (args.x.shape[0] <= most_early_rows)
      return for_few_rows<T>(r, rows, channels, vectors, stream, "rms_norm_forward");
    for_rows<T>(r, rows, channels, vectors, stream, "rms_norm_forward");
  });
}

}  // namespace

void rms_norm_forward(const RmsNormForwardArgs& args, StreamView stream) { run_forward(args, /*apply=*/false, stream); }

void rms_norm_apply(const RmsNormApplyArgs& args, StreamView stream) {
  run_forward({.x = args.x, .weight = args.weight, .y = args.y, .rstd = args.rstd, .weight_offset = args.weight_offset},
              /*apply=*/true, stream);
}

}  // namespace tessera::kernels::cuda
