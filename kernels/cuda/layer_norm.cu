// LayerNorm on a device: a warp or a block per row; mean first, then the squares around it, as the host has it. Backward makes the gradients of
// weight and bias first, by columns, because dx may lie over dy.
#include "kernels/cuda/norm_rows.cuh"
#include "kernels/cuda/ops.hpp"
#include "kernels/layer_norm.hpp"

namespace tessera::kernels::cuda {
namespace {

template <class T>
struct Rows {
  const T *x, *weight, *bias;
  T* y;
  float *mean, *rstd;  // null: not wanted; apply reads them
  std::int64_t rows, channels;
  float eps;
  bool apply;
};

/// Σ f(x[i]) over a row.
template <int N, class TeamType, class T, class F>
__device__ __forceinline__ float row_sum(const T* x, std::int64_t channels, const F& f) {
  constexpr int step = team_block / TeamType::per_block * N;
  float sum = 0;
  for (std::int64_t c = TeamType::lane() * N; c < channels; c += step) {
    float v[N];
    load<N>(x + c, v);
#pragma unroll
    for (int i = 0; i < N; ++i) sum += f(v[i]);
  }
  return TeamType::sum(sum);
}

template <int N, class TeamType, class T>
__global__ void __launch_bounds__(team_block) forward_kernel(const Rows<T> r) {
  const std::int64_t row = TeamType::index();
  if (row >= r.rows) return;  // whole teams
  const T* const x = r.x + row * r.channels;
  T* const y = r.y + row * r.channels;
  constexpr int step = team_block / TeamType::per_block * N;
  float mean, rstd;
  if (r.apply) {
    mean = r.mean[row];
    rstd = r.rstd[row];
  } else {
    const auto n = static_cast<float>(r.channels);
    mean = div(row_sum<N, TeamType>(x, r.channels, [](float v) { return v; }), n);
    const float variance = div(row_sum<N, TeamType>(x, r.channels, [mean](float v) { return (v - mean) * (v - mean); }), n);
    rstd = div(1.0F, root(add(variance, r.eps)));
    if (TeamType::lane() == 0) {
      if (r.mean) r.mean[row] = mean;
      if (r.rstd) r.rstd[row] = rstd;
    }
  }
  for (std::int64_t c = TeamType::lane() * N; c < r.channels; c += step) {
    float v[N], w[N], b[N];
    load<N>(x + c, v);
    load<N>(r.weight + c, w);
    load<N>(r.bias + c, b);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = fused(mul(sub(v[i], mean), rstd), w[i], b[i]);
    store<N>(y + c, v);
  }
}

template <class T>
struct GradRows {
  const T *dy, *x, *weight;
  const float *mean, *rstd;
  T* dx;
  std::int64_t rows, channels;
  bool add;
};

template <int N, class TeamType, class T>
__global__ void __launch_bounds__(team_block) backward_kernel(const GradRows<T> r) {
  const std::int64_t row = TeamType::index();
  if (row >= r.rows) return;
  const T *const x = r.x + row * r.channels, *const dy = r.dy + row * r.channels;
  T* const dx = r.dx + row * r.channels;
  constexpr int step = team_block / TeamType::per_block * N;
  const float mean = r.mean[row], rstd = r.rstd[row];
  float sum = 0, sum_hat = 0;
  for (std::int64_t c = TeamType::lane() * N; c < r.channels; c += step) {
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
  const float a = div(TeamType::sum(sum), n), b = div(TeamType::sum(sum_hat), n);
  for (std::int64_t c = TeamType::lane() * N; c < r.channels; c += step) {
    float v[N], d[N], w[N], old[N];
    load<N>(x + c, v);
    load<N>(dy + c, d);
    load<N>(r.weight + c, w);
    if (r.add) load<N>(dx + c, old);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float hat = mul(sub(v[i], mean), rstd);
      const float slope = mul(rstd, sub(fused(d[i], w[i], -a), mul(hat, b)));
      d[i] = r.add ? old[i] + slope : slope;
    }
    store<N>(dx + c, d);
  }
}

constexpr int weight_columns = 32, weight_lanes = 8;

/// Block (column, rows): partial sums of 32 columns over one block of rows: of the weight, and `channels` further on of the bias.
template <class T>
__global__ void __launch_bounds__(weight_columns* weight_lanes)
    weight_kernel(const GradRows<T> r, std::int64_t height, float* partial) {
  __shared__ float parts[2][weight_lanes][weight_columns + 1];
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * weight_columns + lane;
  const std::int64_t first = blockIdx.y * height, last = first + height < r.rows ? first + height : r.rows;
  float sum = 0, bias = 0;
  if (column < r.channels) {
    for (std::int64_t row = first + warp; row < last; row += weight_lanes) {
      const std::int64_t at = row * r.channels + column;
      const float d = to_float(r.dy[at]), hat = mul(sub(to_float(r.x[at]), r.mean[row]), r.rstd[row]);
      sum = fused(d, hat, sum);
      bias += d;
    }
  }
  parts[0][warp][lane] = sum;
  parts[1][warp][lane] = bias;
  __syncthreads();
  if (warp > 1 || column >= r.channels) return;
  float total = parts[warp][0][lane];
#pragma unroll
  for (int i = 1; i < weight_lanes; ++i) total += parts[warp][i][lane];
  partial[(2 * blockIdx.y + warp) * r.channels + column] = total;
}

template <class T>
void run_forward(const Rows<T>& r, StreamView stream) {
  if (r.rows == 0) return;
  constexpr int n = vector_length<T>;
  const bool vectors = aligned16(r.x) && aligned16(r.y) && aligned16(r.weight) && aligned16(r.bias);
  by_row_shape<n>(r.channels, vectors, [&](auto length, auto team) {
    using TeamType = decltype(team);
    forward_kernel<decltype(length)::value, TeamType, T>
        <<<blocks_for(r.rows, TeamType::per_block), team_block, 0, stream_of(stream)>>>(r);
    check_launch("layer_norm_forward");
  });
}

template <class T>
void run_backward(const GradRows<T>& r, const LayerNormBackwardArgs& args, StreamView stream) {
  auto* const partial = static_cast<float*>(args.workspace.data);
  const std::int64_t height = norm_block_rows(r.rows), parts = (r.rows + height - 1) / height;
  if (parts > 0) {
    const dim3 grid(blocks_for(r.channels, weight_columns), static_cast<unsigned>(parts));
    weight_kernel<T><<<grid, dim3(weight_columns, weight_lanes), 0, stream_of(stream)>>>(r, height, partial);
    check_launch("layer_norm_backward weight");
    constexpr int n = vector_length<T>;
    const bool vectors = aligned16(r.x) && aligned16(r.dy) && aligned16(r.dx) && aligned16(r.weight);
    by_row_shape<n>(r.channels, vectors, [&](auto length, auto team) {
      using TeamType = decltype(team);
      backward_kernel<decltype(length)::value, TeamType, T>
          <<<blocks_for(r.rows, TeamType::per_block), team_block, 0, stream_of(stream)>>>(r);
      check_launch("layer_norm_backward");
    });
  }
  by_gradient<T>(args.dweight.dtype, [&](auto gradient) {
    using G = decltype(gradient);
    TESSERA_ASSERT(args.dbias.dtype == args.dweight.dtype, "dbias of %s", name_of(args.dbias.dtype));
    fold_parts(partial, parts, 2 * r.channels, r.channels, data_of<G>(args.dweight), args.accumulate, stream);
    fold_parts(partial + r.channels, parts, 2 * r.channels, r.channels, data_of<G>(args.dbias), args.accumulate, stream);
  });
}

float* optional(const TensorView& view) { return view ? view.as<float>() : nullptr; }

}  // namespace

void layer_norm_forward(const LayerNormForwardArgs& args, StreamView stream) {
  by_element(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    run_forward<T>({data_of<T>(args.x), data_of<T>(args.weight), data_of<T>(args.bias), data_of<T>(args.y), optional(args.mean),
                    optional(args.rstd), args.x.shape[0], args.x.shape[1], static_cast<float>(args.eps), /*apply=*/false},
                   stream);
  });
}

void layer_norm_apply(const LayerNormApplyArgs& args, StreamView stream) {
  by_element(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    run_forward<T>({data_of<T>(args.x), data_of<T>(args.weight), data_of<T>(args.bias), data_of<T>(args.y), optional(args.mean),
                    optional(args.rstd), args.x.shape[0], args.x.shape[1], 0.0F, /*apply=*/true},
                   stream);
  });
}

void layer_norm_backward(const LayerNormBackwardArgs& args, StreamView stream) {
  const std::int64_t channels = args.weight.numel();
  TESSERA_ASSERT(args.workspace.nbytes() >= static_cast<std::size_t>(2 * norm_blocks * channels) * sizeof(float),
                 "workspace of %zu bytes", args.workspace.nbytes());
  by_element(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    run_backward<T>({data_of<T>(args.dy), data_of<T>(args.x), data_of<T>(args.weight), args.mean.as<float>(),
                     args.rstd.as<float>(), data_of<T>(args.dx), args.x.shape[0], channels, args.add_to_dx},
                    args, stream);
  });
}

}  // namespace tessera::kernels::cuda
