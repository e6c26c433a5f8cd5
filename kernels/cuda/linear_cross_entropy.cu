// SPDX-License-Identifier: Apache-2.0
// linear_cross_entropy on a device: logits of a block of rows in fp32 (gemm), then a kernel with one block per row,
// which computes maximum, sum and loss in one pass and replaces the logits by their gradient, rounded to the
// activations' type, in place; then the two GEMMs of the gradients.
#include "kernels/linear_cross_entropy.hpp"

#include "kernels/cuda/exact_sum_term.hpp"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/thread_group.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/gemm.hpp"

namespace tessera::kernels::cuda {
namespace {

constexpr int loss_threads = 512, loss_vector = 4, loss_tile = loss_threads * loss_vector;
constexpr std::int64_t row_quantum = 128, logits_budget = std::int64_t{1} << 30;

/// Blocks of rows of (N, V): a function of N and V only. Rows of logits are aligned to 32 bytes.
struct RowBlocks {
  std::int64_t pitch, rows;  // elements from row to row; rows of a block
  RowBlocks(std::int64_t n, std::int64_t vocab) {
    pitch = (vocab + 7) / 8 * 8;
    const std::int64_t most = row_limit();
    const std::int64_t blocks = n > most ? (n + most - 1) / most : 1;
    rows = ((n + blocks - 1) / blocks + row_quantum - 1) / row_quantum * row_quantum;
    rows = rows < n ? rows : n;
  }
  /// The most rows that a block of n rows or fewer has.
  [[nodiscard]] std::int64_t most_rows(std::int64_t n) const { return n < row_limit() ? n : row_limit(); }

 private:
  [[nodiscard]] std::int64_t row_limit() const {
    const std::int64_t fit = logits_budget / (pitch * 4) / row_quantum * row_quantum;
    return fit > row_quantum ? fit : row_quantum;
  }
};

/// LossSums in device memory: digits of the loss, then the two counts.
struct SumCounters {
  unsigned long long loss[ExactSum::num_counters], tokens, correct;
};
static_assert(sizeof(SumCounters) == sizeof(LossSums) && offsetof(LossSums, tokens) == offsetof(SumCounters, tokens) &&
              offsetof(LossSums, correct) == offsetof(SumCounters, correct));

template <class T>
struct LossRows {
  float* logits;                // (rows, pitch); as T with twice the pitch once they are gradients
  const std::int32_t* targets;  // (rows)
  const float* weights;         // (rows); null: 1
  SumCounters* sums;
  const double* loss_scale;  // null: no gradient
  std::int64_t vocab, pitch;
};

/// Running maximum with its lowest index, and Σ exp(x - maximum).
struct Running {
  float max = -INFINITY;
  std::int64_t at = -1;
  double sum = 0;
  /// Adds v[0, count), columns from `first`.
  __device__ void take(const float (&v)[loss_vector], int count, std::int64_t first) {
    float largest = max;
    for (int i = 0; i < count; ++i)
      if (v[i] > largest) largest = v[i], at = first + i;
    const float base = largest == -INFINITY ? 0.0F : largest;
    float part = 0;
    for (int i = 0; i < count; ++i) part += expf(v[i] - base);
    if (largest > max) sum *= static_cast<double>(expf(max - base));
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

__device__ void add_row(SumCounters* sums, double loss, bool correct) {
  const ExactSumTerm term = exact_sum_term(loss);
#pragma unroll
  for (int i = 0; i < 3; ++i)
    if (term.part[i] != 0) atomicAdd(sums->loss + term.digit + i, static_cast<unsigned long long>(term.part[i]));
  atomicAdd(&sums->tokens, 1ull);
  if (correct) atomicAdd(&sums->correct, 1ull);
}

/// Reads up to four logits of a row.
__device__ __forceinline__ int read(const float* x, std::int64_t c, std::int64_t vocab, float (&v)[loss_vector]) {
  if (c >= vocab) return 0;
  load<loss_vector>(x + c, v);  // the pitch leaves room
  return vocab - c < loss_vector ? static_cast<int>(vocab - c) : loss_vector;
}

/// Replaces the logits of a row by gradients, tile by tile: a tile is read before it is written, and writes stay below
/// what is still to be read.
template <class T, class F>
__device__ void rewrite(float* x, std::int64_t vocab, const F& gradient) {
  T* const to = reinterpret_cast<T*>(x);
  for (std::int64_t tile = 0; tile < vocab; tile += loss_tile) {
    const std::int64_t c = tile + static_cast<std::int64_t>(threadIdx.x) * loss_vector;
    float v[loss_vector];
    const int count = read(x, c, vocab, v);
    __syncthreads();
    for (int i = 0; i < count; ++i) to[c + i] = rounded<T>(gradient(v[i], c + i));
  }
}

template <class T>
__global__ void __launch_bounds__(loss_threads) loss_kernel(const LossRows<T> r) {
  const std::int64_t row = blockIdx.x;
  float* const x = r.logits + row * r.pitch;
  const std::int32_t target = r.targets[row];
  if (target == ignore_index) {
    if (r.loss_scale) rewrite<T>(x, r.vocab, [](float, std::int64_t) { return 0.0F; });
    return;
  }
  Running own;
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * loss_vector; c < r.vocab; c += loss_tile) {
    float v[loss_vector];
    const int count = read(x, c, r.vocab, v);
    own.take(v, count, c);
  }
  const Running all = join_block(own);
  const double weight = r.weights ? static_cast<double>(r.weights[row]) : 1.0;
  if (threadIdx.x == 0) {
    // A target outside the vocabulary makes the loss NaN.
    const double logit = target >= 0 && target < r.vocab ? static_cast<double>(x[target]) : static_cast<double>(NAN);
    add_row(r.sums, weight * (static_cast<double>(all.max) + log(all.sum) - logit), all.at == target);
  }
  if (!r.loss_scale) return;
  const double scale = *r.loss_scale * weight;
  const auto factor = static_cast<float>(scale / all.sum), one = static_cast<float>(scale);
  __syncthreads();  // the target's logit has been read
  rewrite<T>(x, r.vocab, [&](float v, std::int64_t c) {
    const float p = expf(v - all.max) * factor;
    return c == target ? p - one : p;
  });
}

template <class T>
void run_block(const LinearCrossEntropyArgs& args, const RowBlocks& blocks, std::int64_t first, std::int64_t count,
               StreamView stream) {
  const std::int64_t vocab = args.weight.shape[0];
  const Device device = args.x.device;
  const bool trains = args.trains();
  auto* const logits = static_cast<float*>(args.workspace.data);
  args.for_each_product([&](const LinearCrossEntropyArgs::LowRank& p, bool is_first) {
    gemm({.a = p.x.rows(first, count),
          .b = p.weight,
          .c = TensorView(logits, DType::f32, {count, vocab}, device),
          .trans_b = true,
          .alpha = p.alpha,
          .beta = is_first ? 0.0 : 1.0,
          .bias = {},
          .stride_c = blocks.pitch},
         stream);
  });
  const LossRows<T> rows{logits,
                         data_of<std::int32_t>(args.targets) + first,
                         args.weights ? data_of<float>(args.weights) + first : nullptr,
                         reinterpret_cast<SumCounters*>(args.sums),
                         trains ? args.loss_scale : nullptr,
                         vocab,
                         blocks.pitch};
  loss_kernel<T><<<blocks_for(count, 1), loss_threads, 0, stream_of(stream)>>>(rows);
  check_launch("linear_cross_entropy");
  if (!trains) return;
  const TensorView dlogits(static_cast<void*>(logits), dtype_of<T>::value, {count, vocab}, device);
  const std::int64_t pitch = blocks.pitch * static_cast<std::int64_t>(sizeof(float) / sizeof(T));
  args.for_each_product([&](const LinearCrossEntropyArgs::LowRank& p, bool) {
    if (p.dweight)  // before dx, which may be x
      gemm({.a = dlogits,
            .b = p.x.rows(first, count),
            .c = p.dweight,
            .trans_a = true,
            .alpha = p.alpha,
            .beta = p.accumulate || first > 0 ? 1.0 : 0.0,
            .bias = {},
            .stride_a = pitch},
           stream);
    if (p.dx)
      gemm({.a = dlogits, .b = p.weight, .c = p.dx.rows(first, count), .alpha = p.alpha, .bias = {}, .stride_a = pitch},
           stream);
  });
}

}  // namespace

std::size_t linear_cross_entropy_workspace(std::int64_t rows, std::int64_t vocab) {
  const RowBlocks blocks(rows, vocab);
  return static_cast<std::size_t>(blocks.most_rows(rows) * blocks.pitch) * sizeof(float);
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
  TESSERA_ASSERT(args.workspace.nbytes() >= linear_cross_entropy_workspace(n, vocab) && aligned16(args.workspace.data),
                 "workspace of %zu bytes", args.workspace.nbytes());
  const RowBlocks blocks(n, vocab);
  dispatch_dtype(args.x.dtype, [&](auto zero) {
    for (std::int64_t first = 0; first < n; first += blocks.rows)
      run_block<decltype(zero)>(args, blocks, first, blocks.rows < n - first ? blocks.rows : n - first, stream);
  });
}

}  // namespace tessera::kernels::cuda
