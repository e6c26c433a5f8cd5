// SPDX-License-Identifier: Apache-2.0
// linear_cross_entropy on a device: logits of a block of rows in the activations' type (gemm), then a kernel with one
// block per row, which computes maximum, sum and loss in fp32 and double in one pass and replaces the logits by their
// gradient in place; then the two GEMMs of the gradients.
#include "kernels/linear_cross_entropy.hpp"

#include "kernels/cuda/activations.hpp"
#include "kernels/cuda/loss_sums.cuh"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/thread_group.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/gemm.hpp"

namespace tessera::kernels::cuda {
namespace {

constexpr int loss_threads = 512;
// Every block of rows adds to the whole gradient of the weight, which costs as much as the GEMMs of some 300 rows.
constexpr std::int64_t row_quantum = 128, logits_budget = std::int64_t{2} << 30;

// cuBLASLt's fast kernels need sizes along rows that are a multiple of 8 elements of 16 bits; tiles have 64 and more.
constexpr std::int64_t column_quantum = 64;

/// Blocks of rows of (N, V): a function of N, V and the type only. A row of logits begins at a multiple of 128 bytes.
struct RowBlocks {
  std::int64_t pitch, rows;  // elements from row to row; rows of a block
  RowBlocks(std::int64_t n, std::int64_t vocab, DType dtype) : element_(static_cast<std::int64_t>(size_of(dtype))) {
    pitch = (vocab + column_quantum - 1) / column_quantum * column_quantum;
    const std::int64_t most = row_limit();
    const std::int64_t blocks = n > most ? (n + most - 1) / most : 1;
    rows = ((n + blocks - 1) / blocks + row_quantum - 1) / row_quantum * row_quantum;
    rows = rows < n ? rows : n;
  }
  /// The most rows that a block of n rows or fewer has.
  [[nodiscard]] std::int64_t most_rows(std::int64_t n) const { return n < row_limit() ? n : row_limit(); }
  [[nodiscard]] std::size_t workspace(std::int64_t n) const {
    return static_cast<std::size_t>(most_rows(n) * pitch * element_);
  }

 private:
  [[nodiscard]] std::int64_t row_limit() const {
    const std::int64_t fit = logits_budget / (pitch * element_) / row_quantum * row_quantum;
    return fit > row_quantum ? fit : row_quantum;
  }

  std::int64_t element_;  // bytes
};

template <class T>
struct LossRows {
  T* logits;                    // (rows, pitch); then their gradients
  const std::int32_t* targets;  // (rows)
  const float* weights;         // (rows); null: 1
  SumCounters* sums;            // null: not wanted
  float* log_probs;             // (rows); null: not wanted
  const double* loss_scale;     // null: no gradient
  std::int64_t vocab, pitch;
  float soft_cap, inverse_cap;    // of the logits; 0: none
  std::int32_t first_token;       // of a part of a vocabulary
  TokenStatistics* statistics;    // (rows), written; null: not wanted
  const TokenStatistics* merged;  // (rows): gradients from these; null: of all logits
};

/// Running maximum with its lowest index, and Σ exp(x - maximum).
struct Running {
  float max = -INFINITY;
  std::int64_t at = -1;
  double sum = 0;
  /// Adds v[0, count), columns from `first`.
  template <int N>
  __device__ void take(const float (&v)[N], int count, std::int64_t first) {
    float largest = max;
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (i < count && v[i] > largest) largest = v[i], at = first + i;
    const float base = largest == -INFINITY ? 0.0F : largest;
    float part = 0;
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (i < count) part += exponential(v[i] - base);
    if (largest > max) sum *= static_cast<double>(exponential(max - base));
    sum += static_cast<double>(part);
    max = largest;
  }
  __device__ void join(float other_max, std::int64_t other_at, double other_sum) {
    if (other_max > max || (other_max == max && other_at >= 0 && (at < 0 || other_at < at))) at = other_at;
    const float largest = other_max > max ? other_max : max, base = largest == -INFINITY ? 0.0F : largest;
    sum = sum * exp(static_cast<double>(max) - static_cast<double>(base)) +
          other_sum * exp(static_cast<double>(other_max) - static_cast<double>(base));
    max = largest;
  }
};

/// Reduces over the block by a fixed tree; every thread gets the result.
__device__ Running join_block(Running r) {
  __shared__ float maxima[loss_threads / 32];
  __shared__ std::int64_t indices[loss_threads / 32];
  __shared__ double sums[loss_threads / 32];
#pragma unroll
  for (int width = 1; width < 32; width *= 2) {
    const float max = __shfl_xor_sync(0xffffffffu, r.max, width);
    const std::int64_t at = __shfl_xor_sync(0xffffffffu, r.at, width);
    const double sum = __shfl_xor_sync(0xffffffffu, r.sum, width);
    // Both lanes of a pair must add in the same order, or they would continue with different sums.
    if ((threadIdx.x & static_cast<unsigned>(width)) == 0) r.join(max, at, sum);
    else {
      Running lower{max, at, sum};
      lower.join(r.max, r.at, r.sum);
      r = lower;
    }
  }
  if (threadIdx.x % 32 == 0)
    maxima[threadIdx.x / 32] = r.max, indices[threadIdx.x / 32] = r.at, sums[threadIdx.x / 32] = r.sum;
  __syncthreads();
  Running all{maxima[0], indices[0], sums[0]};
  for (int w = 1; w < loss_threads / 32; ++w) all.join(maxima[w], indices[w], sums[w]);
  return all;
}

/// Reads up to N logits of a row; returns how many.
template <int N, class T>
__device__ __forceinline__ int read(const T* x, std::int64_t c, std::int64_t vocab, float (&v)[N]) {
  if (c >= vocab) return 0;
  load<N>(x + c, v);  // the pitch leaves room
  return vocab - c < N ? static_cast<int>(vocab - c) : N;
}

/// Replaces the logits of a row by gradients, each by the thread that reads it.
template <class T, class F>
__device__ void rewrite(T* x, std::int64_t vocab, const F& gradient) {
  constexpr int n = vector_length<T>;
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * n; c < vocab; c += loss_threads * n) {
    float v[n];
    const int count = read(x, c, vocab, v);
#pragma unroll
    for (int i = 0; i < n; ++i) v[i] = gradient(v[i], c + i);
    if (count == n) {
      store<n>(x + c, v);
    } else {
#pragma unroll
      for (int i = 0; i < n; ++i)
        if (i < count) x[c + i] = rounded<T>(v[i]);
    }
  }
}

template <bool Capped, class T>
__device__ __forceinline__ float capped(const LossRows<T>& r, float logit) {
  if constexpr (Capped) return r.soft_cap * capped_tangent(logit, r.inverse_cap);
  else return logit;
}

/// Replaces the logits of a row by the gradient of one·loss; `factor`: one / Σ exp(logit - max).
template <bool Capped, class T>
__device__ void write_gradient(const LossRows<T>& r, T* x, std::int64_t target, float max, float factor, float one) {
  rewrite(x, r.vocab, [&](float v, std::int64_t c) {
    const float tangent = Capped ? capped_tangent(v, r.inverse_cap) : 0.0F;
    const float p = exponential((Capped ? r.soft_cap * tangent : v) - max) * factor;
    const float gradient = c == target ? p - one : p;
    return Capped ? gradient * (1.0F - tangent * tangent) : gradient;
  });
}

/// Maximum and sum of the exponentials of a row; every thread of the block gets them.
template <bool Capped, class T>
__device__ Running observe_row(const LossRows<T>& r, const T* x) {
  constexpr int n = vector_length<T>;
  Running own;
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * n; c < r.vocab; c += loss_threads * n) {
    float v[n];
    const int count = read(x, c, r.vocab, v);
#pragma unroll
    for (int i = 0; i < n; ++i) v[i] = capped<Capped>(r, v[i]);
    own.take(v, count, c);
  }
  return join_block(own);
}

/// log Σ p² of each row, before the logits become gradients.
template <bool Capped, class T>
__global__ void __launch_bounds__(loss_threads) log_squares_kernel(const LossRows<T> r, double* log_sum_squares) {
  __shared__ double parts[loss_threads / 32];
  const std::int64_t row = blockIdx.x;
  const T* const x = r.logits + row * r.pitch;
  if (r.targets[row] == ignore_index) {
    if (threadIdx.x == 0) log_sum_squares[row] = 0;
    return;
  }
  constexpr int n = vector_length<T>;
  const Running all = observe_row<Capped>(r, x);
  double sum = 0;
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * n; c < r.vocab; c += loss_threads * n) {
    float v[n];
    const int count = read(x, c, r.vocab, v);
#pragma unroll
    for (int i = 0; i < n; ++i) {
      if (i >= count) continue;
      const auto e = static_cast<double>(exponential(capped<Capped>(r, v[i]) - all.max));
      sum += e * e;
    }
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < loss_threads / 32; ++w) sum += parts[w];
  log_sum_squares[row] = log(sum) - 2 * log(all.sum);
}

template <bool Capped, class T>
__global__ void __launch_bounds__(loss_threads) loss_kernel(const LossRows<T> r) {
  const std::int64_t row = blockIdx.x;
  T* const x = r.logits + row * r.pitch;
  const std::int32_t target = r.targets[row];
  if (target == ignore_index) {
    if (r.log_probs && threadIdx.x == 0) r.log_probs[row] = 0.0F;
    if (r.loss_scale) rewrite(x, r.vocab, [](float, std::int64_t) { return 0.0F; });
    return;
  }
  const Running all = observe_row<Capped>(r, x);
  const double weight = r.weights ? static_cast<double>(r.weights[row]) : 1.0;
  if (threadIdx.x == 0) {
    // A target outside the vocabulary makes the loss NaN.
    const double logit = target >= 0 && target < r.vocab ? static_cast<double>(capped<Capped>(r, to_float(x[target])))
                                                         : static_cast<double>(NAN);
    const double loss = static_cast<double>(all.max) + log(all.sum) - logit;
    if (r.sums) add_loss(r.sums, weight * loss, all.at == target);
    if (r.log_probs) r.log_probs[row] = static_cast<float>(-loss);
  }
  if (!r.loss_scale) return;
  const double scale = *r.loss_scale * weight;
  __syncthreads();  // the target's logit has been read
  write_gradient<Capped>(r, x, target, all.max, static_cast<float>(scale / all.sum), static_cast<float>(scale));
}

/// Of a part of a vocabulary.
template <bool Capped, class T>
__global__ void __launch_bounds__(loss_threads) part_statistics_kernel(const LossRows<T> r) {
  const std::int64_t row = blockIdx.x;
  const T* const x = r.logits + row * r.pitch;
  const std::int64_t target = static_cast<std::int64_t>(r.targets[row]) - r.first_token;
  TokenStatistics out{-INFINITY, 0, -INFINITY, 0};
  if (r.targets[row] != ignore_index) {
    const Running all = observe_row<Capped>(r, x);
    out.max = static_cast<double>(all.max);
    out.sum = all.sum;
    if (threadIdx.x == 0 && target >= 0 && target < r.vocab) {
      out.target = static_cast<double>(capped<Capped>(r, to_float(x[target])));
      out.factor = all.at == target ? 1 : 0;
    }
  }
  if (threadIdx.x == 0) r.statistics[row] = out;
}

template <bool Capped, class T>
__global__ void __launch_bounds__(loss_threads) part_gradient_kernel(const LossRows<T> r) {
  const std::int64_t row = blockIdx.x;
  T* const x = r.logits + row * r.pitch;
  if (r.targets[row] == ignore_index) return rewrite(x, r.vocab, [](float, std::int64_t) { return 0.0F; });
  const TokenStatistics all = r.merged[row];
  write_gradient<Capped>(r, x, static_cast<std::int64_t>(r.targets[row]) - r.first_token, static_cast<float>(all.max),
                         static_cast<float>(all.factor / all.sum), static_cast<float>(all.factor));
}

/// Calls f(first column, number of columns, whether it is the first call) for the GEMMs of a vocabulary. In 16 bits a
/// vocabulary that is no multiple of 64 is two ranges of columns (decision 0051): the few last ones, whose kernels load
/// single elements; then all others, to whose gradient of x the former is an addend. Its rounding is then that of a
/// small number.
template <class F>
void for_each_column_range(std::int64_t vocab, DType dtype, const F& f) {
  const std::int64_t full = size_of(dtype) == 2 ? vocab / column_quantum * column_quantum : vocab;
  if (full < vocab) f(full, vocab - full, true);
  if (full > 0) f(std::int64_t{0}, full, full == vocab);
}

/// From row `first` on; null if absent.
TokenStatistics* statistics_of(const TensorView& view, std::int64_t first) {
  return view ? reinterpret_cast<TokenStatistics*>(view.data) + first : nullptr;
}

template <bool Capped, class T>
void launch_loss(const LossRows<T>& rows, std::int64_t count, StreamView stream) {
  const unsigned grid = blocks_for(count, 1);
  if (rows.statistics) part_statistics_kernel<Capped, T><<<grid, loss_threads, 0, stream_of(stream)>>>(rows);
  else if (rows.merged) part_gradient_kernel<Capped, T><<<grid, loss_threads, 0, stream_of(stream)>>>(rows);
  else loss_kernel<Capped, T><<<grid, loss_threads, 0, stream_of(stream)>>>(rows);
  check_launch("linear_cross_entropy");
}

template <class T>
void run_block(const LinearCrossEntropyArgs& args, const RowBlocks& blocks, std::int64_t first, std::int64_t count,
               StreamView stream) {
  const std::int64_t vocab = args.weight.shape[0];
  const Device device = args.x.device;
  const bool trains = args.trains();
  const double cap = args.logits.soft_cap;
  T* const logits = data_of<T>(args.workspace);  // then their gradients
  const auto columns = [&](std::int64_t at, std::int64_t width) {
    return TensorView(logits + at, {count, width}, device);
  };
  args.for_each_product([&](const LinearCrossEntropyArgs::LowRank& p, bool is_first) {
    for_each_column_range(vocab, args.x.dtype, [&](std::int64_t at, std::int64_t width, bool) {
      gemm({.a = p.x.rows(first, count),
            .b = p.weight.rows(at, width),
            .c = columns(at, width),
            .trans_b = true,
            .alpha = p.alpha,
            .beta = is_first ? 0.0 : 1.0,
            .bias = {},
            .stride_c = blocks.pitch},
           stream);
    });
  });
  const LossRows<T> rows{logits,
                         data_of<std::int32_t>(args.targets) + first,
                         args.weights ? data_of<float>(args.weights) + first : nullptr,
                         reinterpret_cast<SumCounters*>(args.sums),
                         args.log_probs ? data_of<float>(args.log_probs) + first : nullptr,
                         trains ? args.loss_scale : nullptr,
                         vocab,
                         blocks.pitch,
                         static_cast<float>(cap),
                         static_cast<float>(cap > 0 ? 1 / cap : 0),
                         static_cast<std::int32_t>(args.part.first),
                         statistics_of(args.part.statistics, first),
                         statistics_of(args.part.merged, first)};
  if (args.log_sum_squares) {
    const auto kernel = cap > 0 ? log_squares_kernel<true, T> : log_squares_kernel<false, T>;
    kernel<<<blocks_for(count, 1), loss_threads, 0, stream_of(stream)>>>(rows,
                                                                         args.log_sum_squares.as<double>() + first);
    check_launch("log Σ p²");
  }
  if (cap > 0) launch_loss<true>(rows, count, stream);
  else launch_loss<false>(rows, count, stream);
  if (!trains) return;
  args.for_each_product([&](const LinearCrossEntropyArgs::LowRank& p, bool) {
    for_each_column_range(vocab, args.x.dtype, [&](std::int64_t at, std::int64_t width, bool) {
      if (p.dweight)  // before dx, which may be x
        gemm({.a = columns(at, width),
              .b = p.x.rows(first, count),
              .c = p.dweight.rows(at, width),
              .trans_a = true,
              .alpha = p.alpha,
              .beta = p.accumulate || first > 0 ? 1.0 : 0.0,
              .bias = {},
              .stride_a = blocks.pitch},
             stream);
    });
    for_each_column_range(vocab, args.x.dtype, [&](std::int64_t at, std::int64_t width, bool is_first) {
      if (p.dx)
        gemm({.a = columns(at, width),
              .b = p.weight.rows(at, width),
              .c = p.dx.rows(first, count),
              .alpha = p.alpha,
              .beta = is_first ? 0.0 : 1.0,
              .bias = {},
              .stride_a = blocks.pitch},
             stream);
    });
  });
}

}  // namespace

std::size_t linear_cross_entropy_workspace(std::int64_t rows, std::int64_t vocab, DType dtype) {
  return RowBlocks(rows, vocab, dtype).workspace(rows);
}

void linear_cross_entropy(const LinearCrossEntropyArgs& args, StreamView stream) {
  const std::int64_t n = args.x.shape[0], vocab = args.weight.shape[0];
  if (n == 0) {  // an empty micro-batch
    args.for_each_product([&](const LinearCrossEntropyArgs::LowRank& p, bool) {
      if (p.dweight && !p.accumulate)
        check(cudaMemsetAsync(p.dweight.data, 0, p.dweight.nbytes(), stream_of(stream)),
              "clearing the head's gradient");
    });
    return;
  }
  TESSERA_ASSERT(args.workspace.nbytes() >= linear_cross_entropy_workspace(n, vocab, args.x.dtype) &&
                     aligned16(args.workspace.data),
                 "workspace of %zu bytes", args.workspace.nbytes());
  const RowBlocks blocks(n, vocab, args.x.dtype);
  dispatch_dtype(args.x.dtype, [&](auto zero) {
    for (std::int64_t first = 0; first < n; first += blocks.rows)
      run_block<decltype(zero)>(args, blocks, first, blocks.rows < n - first ? blocks.rows : n - first, stream);
  });
}

}  // namespace tessera::kernels::cuda
