// RMSNorm on a device: a warp or a block per group, which reads its row twice, the second time out of cache. Backward makes the weight's
// gradient first, by columns, because dx may lie over dy.
#include "kernels/cuda/norm_rows.cuh"
#include "kernels/cuda/ops.hpp"
#include "kernels/rms_norm.hpp"

namespace tessera::kernels::cuda {
namespace {

template <class T>
struct Rows {
  const T *x, *weight;
  T* y;
  float* rstd;  // null: not wanted; apply reads it
  std::int64_t rows, groups, channels, stride_x, stride_y;
  float eps;
  bool apply;
};

template <int N, class TeamType, class T>
__global__ void __launch_bounds__(team_block) forward_kernel(const Rows<T> r) {
  const std::int64_t index = TeamType::index();
  if (index >= r.rows * r.groups) return;  // whole teams
  const std::int64_t row = index / r.groups, group = index % r.groups;
  const T* const x = r.x + row * r.stride_x + group * r.channels;
  T* const y = r.y + row * r.stride_y + group * r.channels;
  constexpr int step = team_block / TeamType::per_block * N;
  float rstd;
  if (r.apply) {
    rstd = r.rstd[index];
  } else {
    float square = 0;
    for (std::int64_t c = TeamType::lane() * N; c < r.channels; c += step) {
      float v[N];
      load<N>(x + c, v);
#pragma unroll
      for (int i = 0; i < N; ++i) square = fused(v[i], v[i], square);
    }
    square = TeamType::sum(square);
    rstd = div(1.0F, root(add(div(square, static_cast<float>(r.channels)), r.eps)));
    if (r.rstd && TeamType::lane() == 0) r.rstd[index] = rstd;
  }
  for (std::int64_t c = TeamType::lane() * N; c < r.channels; c += step) {
    float v[N], w[N];
    load<N>(x + c, v);
    load<N>(r.weight + c, w);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = mul(mul(v[i], rstd), w[i]);
    store<N>(y + c, v);
  }
}

template <class T>
struct GradRows {
  const T *dy, *x, *weight;
  const float* rstd;
  T* dx;
  std::int64_t rows, groups, channels, stride_dy, stride_x, stride_dx;
  bool add;
};

template <int N, class TeamType, class T>
__global__ void __launch_bounds__(team_block) backward_kernel(const GradRows<T> r) {
  const std::int64_t index = TeamType::index();
  if (index >= r.rows * r.groups) return;
  const std::int64_t row = index / r.groups, group = index % r.groups;
  const T* const x = r.x + row * r.stride_x + group * r.channels;
  const T* const dy = r.dy + row * r.stride_dy + group * r.channels;
  T* const dx = r.dx + row * r.stride_dx + group * r.channels;
  constexpr int step = team_block / TeamType::per_block * N;
  const float rstd = r.rstd[index];
  float dot = 0;
  for (std::int64_t c = TeamType::lane() * N; c < r.channels; c += step) {
    float v[N], d[N], w[N];
    load<N>(x + c, v);
    load<N>(dy + c, d);
    load<N>(r.weight + c, w);
#pragma unroll
    for (int i = 0; i < N; ++i) dot = fused(mul(d[i], w[i]), mul(v[i], rstd), dot);
  }
  const float mean = div(TeamType::sum(dot), static_cast<float>(r.channels));
  for (std::int64_t c = TeamType::lane() * N; c < r.channels; c += step) {
    float v[N], d[N], w[N], old[N];
    load<N>(x + c, v);
    load<N>(dy + c, d);
    load<N>(r.weight + c, w);
    if (r.add) load<N>(dx + c, old);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float slope = mul(rstd, fused(d[i], w[i], -mul(mul(v[i], rstd), mean)));
      d[i] = r.add ? old[i] + slope : slope;
    }
    store<N>(dx + c, d);
  }
}

constexpr int weight_columns = 32, weight_lanes = 8;

/// Block (column, rows): partial Σ dy·x·rstd of 32 columns over one block of rows, its 8 warps taking every eighth row.
template <class T>
__global__ void __launch_bounds__(weight_columns* weight_lanes)
    weight_kernel(const GradRows<T> r, std::int64_t height, float* partial) {
  __shared__ float parts[weight_lanes][weight_columns + 1];
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * weight_columns + lane;
  const std::int64_t first = blockIdx.y * height, last = first + height < r.rows ? first + height : r.rows;
  float sum = 0;
  if (column < r.channels) {
    for (std::int64_t row = first + warp; row < last; row += weight_lanes)
      for (std::int64_t g = 0; g < r.groups; ++g) {
        const std::int64_t at = g * r.channels + column;
        const float hat = mul(to_float(r.x[row * r.stride_x + at]), r.rstd[row * r.groups + g]);
        sum = fused(to_float(r.dy[row * r.stride_dy + at]), hat, sum);
      }
  }
  parts[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= r.channels) return;
  float total = parts[0][lane];
#pragma unroll
  for (int i = 1; i < weight_lanes; ++i) total += parts[i][lane];
  partial[blockIdx.y * r.channels + column] = total;
}

std::int64_t stride_of(const TensorView& x, std::int64_t asked) { return asked > 0 ? asked : x.shape[1]; }

template <class T>
void run_forward(const Rows<T>& r, StreamView stream) {
  if (r.rows * r.groups == 0) return;
  constexpr int n = vector_length<T>;
  const bool vectors = r.stride_x % n == 0 && r.stride_y % n == 0 && aligned16(r.x) && aligned16(r.y) && aligned16(r.weight);
  by_row_shape<n>(r.channels, vectors, [&](auto length, auto team) {
    using TeamType = decltype(team);
    forward_kernel<decltype(length)::value, TeamType, T>
        <<<blocks_for(r.rows * r.groups, TeamType::per_block), team_block, 0, stream_of(stream)>>>(r);
    check_launch("rms_norm_forward");
  });
}

template <class T>
void run_backward(const GradRows<T>& r, const RmsNormBackwardArgs& args, StreamView stream) {
  auto* const partial = static_cast<float*>(args.workspace.data);
  const std::int64_t height = norm_block_rows(r.rows), parts = (r.rows + height - 1) / height;
  if (parts > 0) {
    const dim3 grid(blocks_for(r.channels, weight_columns), static_cast<unsigned>(parts));
    weight_kernel<T><<<grid, dim3(weight_columns, weight_lanes), 0, stream_of(stream)>>>(r, height, partial);
    check_launch("rms_norm_backward weight");
    constexpr int n = vector_length<T>;
    const bool vectors = r.stride_x % n == 0 && r.stride_dy % n == 0 && r.stride_dx % n == 0 && aligned16(r.x) &&
                         aligned16(r.dy) && aligned16(r.dx) && aligned16(r.weight);
    by_row_shape<n>(r.channels, vectors, [&](auto length, auto team) {
      using TeamType = decltype(team);
      backward_kernel<decltype(length)::value, TeamType, T>
          <<<blocks_for(r.rows * r.groups, TeamType::per_block), team_block, 0, stream_of(stream)>>>(r);
      check_launch("rms_norm_backward");
    });
  }
  by_gradient<T>(args.dweight.dtype, [&](auto gradient) {
    fold_parts(partial, parts, r.channels, r.channels, data_of<decltype(gradient)>(args.dweight), args.accumulate, stream);
  });
}

}  // namespace

void rms_norm_forward(const RmsNormForwardArgs& args, StreamView stream) {
  const std::int64_t channels = args.weight.numel();
  by_element(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    run_forward<T>(
        {data_of<T>(args.x), data_of<T>(args.weight), data_of<T>(args.y), args.rstd ? args.rstd.as<float>() : nullptr,
         args.x.shape[0], args.x.shape[1] / channels, channels, stride_of(args.x, args.stride_x),
         stride_of(args.y, args.stride_y), static_cast<float>(args.eps), /*apply=*/false},
        stream);
  });
}

void rms_norm_apply(const RmsNormApplyArgs& args, StreamView stream) {
  const std::int64_t channels = args.weight.numel(), width = args.x.shape[1];
  by_element(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    run_forward<T>({data_of<T>(args.x), data_of<T>(args.weight), data_of<T>(args.y), args.rstd.as<float>(), args.x.shape[0],
                    width / channels, channels, width, width, 0.0F, /*apply=*/true},
                   stream);
  });
}

void rms_norm_backward(const RmsNormBackwardArgs& args, StreamView stream) {
  const std::int64_t channels = args.weight.numel();
  TESSERA_ASSERT(args.workspace.nbytes() >= static_cast<std::size_t>(norm_blocks * channels) * sizeof(float),
                 "workspace of %zu bytes", args.workspace.nbytes());
  by_element(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    run_backward<T>(
        {data_of<T>(args.dy), data_of<T>(args.x), data_of<T>(args.weight), args.rstd.as<float>(), data_of<T>(args.dx),
         args.x.shape[0], args.x.shape[1] / channels, channels, stride_of(args.dy, args.stride_dy),
         stride_of(args.x, args.stride_x), stride_of(args.dx, args.stride_dx), args.add_to_dx},
        args, stream);
  });
}

}  // namespace tessera::kernels::cuda
