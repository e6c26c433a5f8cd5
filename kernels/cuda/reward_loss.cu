// SPDX-License-Identifier: Apache-2.0
// Scores of sequences on a device: a block per row sums in fp64 by a fixed tree, which padding does not change; a
// thread per channel adds the rows of the weight's gradient in order.
#include "kernels/cuda/loss_sums.cuh"
#include "kernels/cuda/reward_loss.hpp"
#include "kernels/cuda/thread_group.cuh"
#include "kernels/reward_formulas.hpp"

namespace tessera::kernels::cuda {
namespace {

template <class T>
struct Scored {
  const T* x;
  const T* weight;
  const std::int32_t* ids;
  const std::int32_t* positions;
  const std::int32_t* ends;  // null: each sequence is a row
  std::int32_t pad_token;
  std::int64_t tokens, channels;
  std::int32_t* last;
  double* scores;
};

template <class T>
__global__ void __launch_bounds__(group_block) score_kernel(const Scored<T> s) {
  __shared__ int of_warps[group_block / 32];
  const std::int64_t row = blockIdx.x,
                     begin = !s.ends    ? row * s.tokens
                             : row == 0 ? 0
                                        : s.ends[row - 1],
                     end = s.ends ? s.ends[row] : begin + s.tokens;
  auto last = static_cast<int>(begin);
  for (std::int64_t t = begin + threadIdx.x; t < end; t += group_block)
    if (s.positions[t] != 0 && s.ids[t] != s.pad_token) last = static_cast<int>(t);
  last = warp_max(last);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = last;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < group_block / 32; ++warp) last = of_warps[warp] > last ? of_warps[warp] : last;
  const T* const x = s.x + last * s.channels;
  double sum = 0;
  for (std::int64_t c = threadIdx.x; c < s.channels; c += group_block)
    sum += static_cast<double>(to_float(x[c])) * static_cast<double>(to_float(s.weight[c]));
  sum = ThreadGroup<group_block>::sum(sum);
  if (threadIdx.x != 0) return;
  s.last[row] = last;
  s.scores[row] = sum;
}

struct Rewards {
  const double* scores;
  const float* margins;  // null: 0
  double center;
  double* slopes;         // null: not wanted
  SumCounters* sums;      // null: not wanted
  std::int64_t* metrics;  // null: not wanted
  std::int64_t pairs;
};

__device__ void add_units(std::int64_t* to, double value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(preference_units(value)));
}

/// A thread for a pair.
__global__ void __launch_bounds__(group_block) rewards_kernel(const Rewards r) {
  const std::int64_t pair = static_cast<std::int64_t>(blockIdx.x) * group_block + threadIdx.x;
  if (pair >= r.pairs) return;
  const double chosen = r.scores[2 * pair], rejected = r.scores[2 * pair + 1];
  const double margin = r.margins ? static_cast<double>(r.margins[2 * pair]) : 0.0;
  const RewardTerms terms = reward_terms(chosen, rejected, margin, r.center);
  if (r.sums) add_loss(r.sums, terms.loss, chosen > rejected);
  if (r.metrics) {
    add_units(r.metrics + static_cast<int>(PreferenceSum::chosen_reward), chosen);
    add_units(r.metrics + static_cast<int>(PreferenceSum::rejected_reward), rejected);
  }
  if (!r.slopes) return;
  r.slopes[2 * pair] = terms.chosen_slope;
  r.slopes[2 * pair + 1] = terms.rejected_slope;
}

template <class T>
struct ScoreBackward {
  const T* x;
  const T* weight;
  const std::int32_t* last;
  const double* slopes;
  const double* loss_scale;
  std::int64_t rows, channels;
};

/// A thread for a channel.
template <class T, class G>
__global__ void __launch_bounds__(group_block)
    score_weight_kernel(const ScoreBackward<T> b, G* dweight, bool accumulate) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * group_block + threadIdx.x;
  if (c >= b.channels) return;
  double sum = accumulate ? static_cast<double>(to_float(dweight[c])) : 0.0;
  for (std::int64_t row = 0; row < b.rows; ++row)
    sum += *b.loss_scale * b.slopes[row] * static_cast<double>(to_float(b.x[b.last[row] * b.channels + c]));
  dweight[c] = rounded<G>(static_cast<float>(sum));
}

/// A thread for a channel of a last token; the others are 0.
template <class T>
__global__ void __launch_bounds__(group_block) score_input_kernel(const ScoreBackward<T> b, T* dx) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * group_block + threadIdx.x;
  if (i >= b.rows * b.channels) return;
  const std::int64_t row = i / b.channels, c = i % b.channels;
  dx[b.last[row] * b.channels + c] =
      rounded<T>(static_cast<float>(*b.loss_scale * b.slopes[row] * static_cast<double>(to_float(b.weight[c]))));
}

}  // namespace

void score_sequences(const ScoreArgs& args, StreamView stream) {
  const std::int64_t rows = args.scores.numel();
  if (rows == 0) return;
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    const Scored<T> s{data_of<T>(args.x),
                      data_of<T>(args.weight),
                      data_of<std::int32_t>(args.ids),
                      data_of<std::int32_t>(args.positions),
                      args.ends ? data_of<std::int32_t>(args.ends) : nullptr,
                      args.pad_token,
                      args.ids.shape[1],
                      args.x.shape[1],
                      data_of<std::int32_t>(args.last),
                      data_of<double>(args.scores)};
    score_kernel<T><<<blocks_for(rows, 1), group_block, 0, stream_of(stream)>>>(s);
    check_launch("score_sequences");
  });
}

void reward_loss(const RewardLossArgs& args, StreamView stream) {
  const std::int64_t pairs = args.scores.numel() / 2;
  if (pairs == 0) return;
  const Rewards r{data_of<double>(args.scores),
                  args.margins ? data_of<float>(args.margins) : nullptr,
                  args.center,
                  args.slopes ? data_of<double>(args.slopes) : nullptr,
                  reinterpret_cast<SumCounters*>(args.sums),
                  args.metrics,
                  pairs};
  rewards_kernel<<<blocks_for(pairs, group_block), group_block, 0, stream_of(stream)>>>(r);
  check_launch("reward_loss");
}

void score_backward(const ScoreBackwardArgs& args, StreamView stream) {
  const std::int64_t rows = args.last.numel(), channels = args.x.shape[1];
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    const ScoreBackward<T> b{data_of<T>(args.x),
                             data_of<T>(args.weight),
                             data_of<std::int32_t>(args.last),
                             data_of<double>(args.slopes),
                             args.loss_scale,
                             rows,
                             channels};
    if (args.dweight)  // before dx, which may be x
      dispatch_gradient_dtype<T>(args.dweight.dtype, [&]<class G>(G) {
        score_weight_kernel<T, G><<<blocks_for(channels, group_block), group_block, 0, stream_of(stream)>>>(
            b, data_of<G>(args.dweight), args.accumulate);
        check_launch("score_backward");
      });
    if (!args.dx) return;
    check(cudaMemsetAsync(args.dx.data, 0, args.dx.nbytes(), stream_of(stream)), "clearing the gradient of scores");
    score_input_kernel<T>
        <<<blocks_for(rows * channels, group_block), group_block, 0, stream_of(stream)>>>(b, data_of<T>(args.dx));
    check_launch("score_backward");
  });
}

}  // namespace tessera::kernels::cuda
