// SPDX-License-Identifier: Apache-2.0
// Backward of RMSNorm on a device, one pass over x and dy: a block takes a range of norms (rows, or heads in them), a
// warp or the whole block one at a time. Its threads keep their columns in registers, with the residual's gradient, so
// that a norm is one wait for memory; of more than held_columns they read x and dy again, from cache. Each thread keeps
// the sums of its columns of the weight's gradient in registers and writes them once for the range; a second kernel
// adds the ranges, which depend on the number of norms alone. dx may be dy: a thread reads an element before it writes
// it.
#include "kernels/cuda/norm_rows.cuh"
#include "kernels/cuda/ops.hpp"
#include "kernels/rms_norm.hpp"

namespace tessera::kernels::cuda {
namespace {

constexpr int held_columns = 16;  // of a thread

/// N elements as they lie in memory: 16 bytes, or one element.
template <int N, class T>
using Raw = std::conditional_t<N == 1, T, uint4>;

template <int N, class T>
__device__ __forceinline__ Raw<N, T> read_raw(const T* p) {
  return *reinterpret_cast<const Raw<N, T>*>(p);
}
template <int N, class T>
__device__ __forceinline__ void widen(const Raw<N, T>& raw, float (&v)[N]) {
  T parts[N];
  memcpy(parts, &raw, sizeof raw);
#pragma unroll
  for (int i = 0; i < N; ++i) v[i] = to_float(parts[i]);
}

template <class T>
struct RmsNormBackward {
  const T *dy, *x, *weight;
  const float* rstd;
  T* dx;           // null: not wanted
  float* partial;  // (blocks, channels); null: the weight's gradient is not wanted
  std::int64_t norms, height, groups, channels, stride_dy, stride_x, stride_dx;  // height: norms of a block
  bool add_to_dx;
  float offset;  // added to the weight

  /// take and write of a norm, each element read once. `w`: the thread's columns of the weight.
  template <int N, int K, class Group>
  __device__ void run_held(const T* x_row, const T* dy_row, T* dx_row, float scale, std::int64_t own, std::int64_t step,
                           const Raw<N, T> (&w)[K], float (&sums)[K][N]) const {
    Raw<N, T> held_x[K], held_dy[K], held_dx[K];
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const std::int64_t c = own + k * step;
      if (c >= channels) break;
      held_x[k] = read_raw<N>(x_row + c);
      held_dy[k] = read_raw<N>(dy_row + c);
      if (add_to_dx) held_dx[k] = read_raw<N>(dx_row + c);
    }
    float dot = 0;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (own + k * step >= channels) break;
      float v[N], d[N], weights[N];
      widen<N, T>(held_x[k], v);
      widen<N, T>(held_dy[k], d);
      widen<N, T>(w[k], weights);
#pragma unroll
      for (int i = 0; i < N; ++i) add_element(v[i], d[i], weights[i], scale, sums[k][i], dot);
    }
    if (dx == nullptr) return;
    const float mean = div(Group::sum(dot), static_cast<float>(channels));
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const std::int64_t c = own + k * step;
      if (c >= channels) break;
      float v[N], d[N], weights[N], old[N] = {};
      widen<N, T>(held_x[k], v);
      widen<N, T>(held_dy[k], d);
      widen<N, T>(w[k], weights);
      if (add_to_dx) widen<N, T>(held_dx[k], old);
#pragma unroll
      for (int i = 0; i < N; ++i) d[i] = gradient(v[i], d[i], weights[i], scale, mean, old[i]);
      store<N>(dx_row + c, d);
    }
  }

  __device__ void add_element(float v, float d, float w, float scale, float& sum, float& dot) const {
    const float hat = mul(v, scale);
    sum = fused(d, hat, sum);
    dot = fused(mul(d, add(w, offset)), hat, dot);
  }
  __device__ float gradient(float v, float d, float w, float scale, float mean, float old) const {
    const float slope = mul(scale, fused(d, add(w, offset), -mul(mul(v, scale), mean)));
    return add_to_dx ? old + slope : slope;
  }

  /// Adds a thread's columns of a norm to `sums`; returns their part of Σ dy·weight·x·rstd.
  template <int N, int K>
  __device__ float take(const T* x_row, const T* dy_row, float scale, std::int64_t own, std::int64_t step,
                        float (&sums)[K][N]) const {
    float dot = 0;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const std::int64_t c = own + k * step;
      if (c >= channels) break;
      float v[N], d[N], w[N];
      load<N>(x_row + c, v);
      load<N>(dy_row + c, d);
      load<N>(weight + c, w);
#pragma unroll
      for (int i = 0; i < N; ++i) add_element(v[i], d[i], w[i], scale, sums[k][i], dot);
    }
    return dot;
  }

  /// Writes a thread's columns of dx.
  template <int N>
  __device__ void write(const T* x_row, const T* dy_row, T* dx_row, float scale, float mean, std::int64_t own,
                        std::int64_t step) const {
    for (std::int64_t c = own; c < channels; c += step) {
      float v[N], d[N], w[N], old[N] = {};
      load<N>(x_row + c, v);
      load<N>(dy_row + c, d);
      load<N>(weight + c, w);
      if (add_to_dx) load<N>(dx_row + c, old);
#pragma unroll
      for (int i = 0; i < N; ++i) d[i] = gradient(v[i], d[i], w[i], scale, mean, old[i]);
      store<N>(dx_row + c, d);
    }
  }
};

/// A block's sums of its columns: a block is one group, or the groups' sums are added in order.
template <int N, int K, class Group>
__device__ void write_sums(const float (&sums)[K][N], std::int64_t own, std::int64_t step, std::int64_t channels,
                           float* out) {
  if constexpr (Group::per_block == 1) {
#pragma unroll
    for (int k = 0; k < K; ++k)
      if (own + k * step < channels) store<N>(out + own + k * step, sums[k]);
  } else {
    __shared__ float parts[Group::per_block][warp_channels];
    const int group = static_cast<int>(threadIdx.x) / (group_block / Group::per_block);
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int i = 0; i < N; ++i)
        if (own + k * step + i < channels) parts[group][own + k * step + i] = sums[k][i];
    __syncthreads();
    for (std::int64_t c = threadIdx.x; c < channels; c += group_block) {
      float total = parts[0][c];
#pragma unroll
      for (int g = 1; g < Group::per_block; ++g) total += parts[g][c];
      out[c] = total;
    }
  }
}

/// K vectors of N columns a thread: group_block / per_block · N · K columns at most.
template <int N, int K, class Group, class T>
__global__ void __launch_bounds__(group_block) backward_kernel(const RmsNormBackward<T> r) {
  constexpr int threads = group_block / Group::per_block;
  constexpr bool held = N * K <= held_columns;
  constexpr std::int64_t step = threads * N;
  const std::int64_t own = Group::lane() * N, first = blockIdx.x * r.height,
                     end = first + r.height < r.norms ? first + r.height : r.norms;
  float sums[K][N] = {};
  Raw<N, T> w[K];
#pragma unroll
  for (int k = 0; k < K && held; ++k)
    if (own + k * step < r.channels) w[k] = read_raw<N>(r.weight + own + k * step);
  for (std::int64_t index = first + threadIdx.x / threads; index < end; index += Group::per_block) {
    const std::int64_t row = index / r.groups, at = index % r.groups * r.channels;
    const T *const x = r.x + row * r.stride_x + at, *const dy = r.dy + row * r.stride_dy + at;
    T* const dx = r.dx == nullptr ? nullptr : r.dx + row * r.stride_dx + at;
    const float rstd = r.rstd[index];
    if constexpr (held) {
      r.template run_held<N, K, Group>(x, dy, dx, rstd, own, step, w, sums);
    } else {
      const float dot = r.template take<N, K>(x, dy, rstd, own, step, sums);
      if (dx == nullptr) continue;
      const float mean = div(Group::sum(dot), static_cast<float>(r.channels));
      r.template write<N>(x, dy, dx, rstd, mean, own, step);
    }
  }
  if (r.partial == nullptr) return;
  write_sums<N, K, Group>(sums, own, step, r.channels, r.partial + blockIdx.x * r.channels);
}

/// Launches the kernel with enough columns a thread.
template <int N, class T>
void launch(const RmsNormBackward<T>& r, unsigned blocks, StreamView stream) {
  const auto run = [&]<int Columns, class Group>(std::integral_constant<int, Columns>, Group) {
    static_assert(Columns % N == 0);
    backward_kernel<N, Columns / N, Group, T><<<blocks, group_block, 0, stream_of(stream)>>>(r);
  };
  if (r.channels <= warp_channels) run(std::integral_constant<int, warp_channels / 32>{}, ThreadGroup<32>{});
  else if (r.channels <= 8 * group_block) run(std::integral_constant<int, 8>{}, ThreadGroup<group_block>{});
  else if (r.channels <= 32 * group_block) run(std::integral_constant<int, 32>{}, ThreadGroup<group_block>{});
  else run(std::integral_constant<int, max_device_norm_channels / group_block>{}, ThreadGroup<group_block>{});
  check_launch("rms_norm_backward");
}

}  // namespace

void rms_norm_backward(const RmsNormBackwardArgs& args, StreamView stream) {
  const std::int64_t channels = args.weight.numel(), groups = args.x.shape[1] / channels,
                     norms = args.x.shape[0] * groups;
  TESSERA_ASSERT(channels <= max_device_norm_channels, "%ld channels", channels);
  const std::int64_t least = (norms + rms_norm_device_blocks - 1) / rms_norm_device_blocks,
                     height = least > 8 ? least : 8, blocks = (norms + height - 1) / height;
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    const RmsNormBackward<T> r{data_of<T>(args.dy),
                               data_of<T>(args.x),
                               data_of<T>(args.weight),
                               args.rstd.as<float>(),
                               args.dx ? data_of<T>(args.dx) : nullptr,
                               args.dweight ? static_cast<float*>(args.workspace.data) : nullptr,
                               norms,
                               height,
                               groups,
                               channels,
                               stride_of(args.dy, args.stride_dy),
                               stride_of(args.x, args.stride_x),
                               args.dx ? stride_of(args.dx, args.stride_dx) : 0,
                               args.dx && args.add_to_dx,
                               static_cast<float>(args.weight_offset)};
    constexpr int n = vector_length<T>;
    const bool vectors = channels % n == 0 && r.stride_x % n == 0 && r.stride_dy % n == 0 && r.stride_dx % n == 0 &&
                         aligned16(r.x) && aligned16(r.dy) && aligned16(r.dx) && aligned16(r.weight) &&
                         aligned16(r.partial);
    if (blocks > 0) {
      if (vectors) launch<n>(r, blocks_for(blocks, 1), stream);
      else launch<1>(r, blocks_for(blocks, 1), stream);
    }
    if (args.dweight) sum_partials<T>(r.partial, blocks, channels, args.dweight, args.accumulate, stream);
  });
}

}  // namespace tessera::kernels::cuda
