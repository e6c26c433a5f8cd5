// SPDX-License-Identifier: Apache-2.0
// Mixture of experts on a device: routing, one warp per token. moe_dispatch.cu assigns rows to experts, moe_rows.cu
// moves them.
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/thread_group.cuh"
#include "kernels/moe.hpp"

namespace tessera::kernels::cuda {
namespace {

struct Choice {
  const float* logits;
  float* probs;
  std::int32_t* experts;
  float* weights;
  std::int64_t tokens, num_experts, k;
  ExpertWeights weigh;
  PaddingMap padding;
};

/// The next of `p` after (last, last_at) in the order of choice: descending, the lowest index first among equals.
__device__ std::int64_t next_choice(const float* p, std::int64_t n, float last, std::int64_t last_at, float& value) {
  float best = -INFINITY;
  std::int64_t at = n;
  for (std::int64_t e = threadIdx.x % 32; e < n; e += 32) {
    const float x = p[e];
    const bool behind = last_at < 0 || x < last || (x == last && e > last_at);
    if (behind && x > best) best = x, at = e;
  }
#pragma unroll
  for (int width = 16; width > 0; width /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, best, width);
    const std::int64_t other_at = __shfl_xor_sync(0xffffffffu, at, width);
    if (other > best || (other == best && other_at < at)) best = other, at = other_at;
  }
  value = best;
  return at < n ? at
                : (last_at + 1) % n;  // only if probabilities are NaN: any expert, so that the index stays in bounds
}

/// Chooses by x, and weighs by it or its sigmoid. Returns the sum of the chosen.
__device__ float choose(const Choice& c, std::int64_t token, const float* x) {
  const int lane = ThreadGroup<32>::lane();
  float last = 0, total = 0;
  std::int64_t last_at = -1;
  for (std::int64_t i = 0; i < c.k; ++i) {
    last_at = next_choice(x, c.num_experts, last, last_at, last);
    total += last;
    if (lane == 0) {
      c.experts[token * c.k + i] = static_cast<std::int32_t>(last_at);
      c.weights[token * c.k + i] = c.weigh == ExpertWeights::sigmoids ? div(1.0F, add(1.0F, expf(-last))) : last;
    }
  }
  return total;
}

__global__ void __launch_bounds__(group_block) route_kernel(const Choice c) {
  const std::int64_t token = ThreadGroup<32>::index(), n = c.num_experts;
  if (token >= c.tokens) return;
  const int lane = ThreadGroup<32>::lane();
  const float* const x = c.logits + token * n;
  float* const p = c.probs + token * n;
  if (c.weigh == ExpertWeights::sigmoids) {
    choose(c, token, x);
    __syncwarp();  // p may be x
  }
  float max = -INFINITY, sum = 0;
  for (std::int64_t e = lane; e < n; e += 32) max = x[e] > max ? x[e] : max;
  max = warp_max(max);
  for (std::int64_t e = lane; e < n; e += 32) {
    const float power = expf(x[e] - max);
    p[e] = power;
    sum += power;
  }
  const float inverse = div(1.0F, warp_sum(sum));
  for (std::int64_t e = lane; e < n; e += 32) p[e] *= inverse;
  if (c.weigh == ExpertWeights::sigmoids) return;
  const float total = choose(c, token, p);
  if (c.weigh != ExpertWeights::normalized) return;
  __syncwarp();
  for (std::int64_t i = lane; i < c.k; i += 32) c.weights[token * c.k + i] = div(c.weights[token * c.k + i], total);
}

/// One block per expert: how often it was chosen, and Σ over tokens of its probability, by a fixed tree in double.
__global__ void __launch_bounds__(group_block) statistics_kernel(const Choice c, double* counts, double* sums) {
  const std::int64_t expert = blockIdx.x;
  double count = 0, sum = 0;
  for (std::int64_t i = threadIdx.x; i < c.tokens * c.k; i += group_block)
    count += c.experts[i] == expert && !c.padding.has(i / c.k) ? 1.0 : 0.0;
  for (std::int64_t t = threadIdx.x; t < c.tokens; t += group_block)
    sum += c.padding.has(t) ? 0.0 : static_cast<double>(c.probs[t * c.num_experts + expert]);
  count = ThreadGroup<group_block>::sum(count);
  sum = ThreadGroup<group_block>::sum(sum);
  if (threadIdx.x == 0) counts[expert] = count, sums[expert] = sum;
}

template <class T>
struct ChoiceGradient {
  const float *dweights, *probs, *weights;
  const std::int32_t* experts;
  const double* balance;  // or null
  T* dlogits;
  std::int64_t tokens, num_experts, k;
  ExpertWeights weigh;
};

/// dp of expert e: from the balance loss, and from the choice if it was chosen.
template <class T>
__device__ float probability_gradient(const ChoiceGradient<T>& c, std::int64_t token, std::int64_t e, float total,
                                      float mean) {
  float dp = c.balance ? static_cast<float>(c.balance[e]) : 0.0F;
#pragma unroll 1  // unrolled, it spills on sm_80
  for (std::int64_t i = token * c.k; i < (token + 1) * c.k; ++i) {
    if (c.experts[i] != e || c.weigh == ExpertWeights::sigmoids) continue;
    dp += c.weigh == ExpertWeights::normalized ? div(c.dweights[i] - mean, total) : c.dweights[i];
  }
  return dp;
}

/// The gradient of expert e's logit through its sigmoid, if it was chosen and is weighed by it.
template <class T>
__device__ float sigmoid_gradient(const ChoiceGradient<T>& c, std::int64_t token, std::int64_t e) {
  if (c.weigh != ExpertWeights::sigmoids) return 0;
#pragma unroll 1
  for (std::int64_t i = token * c.k; i < (token + 1) * c.k; ++i)
    if (c.experts[i] == e) return mul(mul(c.dweights[i], c.weights[i]), 1.0F - c.weights[i]);
  return 0;
}

template <class T>
__global__ void __launch_bounds__(group_block) route_backward_kernel(const ChoiceGradient<T> c) {
  const std::int64_t token = ThreadGroup<32>::index(), n = c.num_experts;
  if (token >= c.tokens) return;
  const int lane = ThreadGroup<32>::lane();
  const float* const p = c.probs + token * n;
  float total = 0, mean = 0, dot = 0;  // of the chosen probabilities; Σ dw·w; Σ p·dp
  for (std::int64_t i = token * c.k; i < (token + 1) * c.k; ++i) {
    total += p[c.experts[i]];
    mean += c.dweights[i] * c.weights[i];
  }
  for (std::int64_t e = lane; e < n; e += 32) dot = fmaf(p[e], probability_gradient(c, token, e, total, mean), dot);
  dot = warp_sum(dot);  // also a barrier before writing: dlogits may be probs
  for (std::int64_t e = lane; e < n; e += 32) {
    const float slope = p[e] * (probability_gradient(c, token, e, total, mean) - dot);
    c.dlogits[token * n + e] = rounded<T>(slope + sigmoid_gradient(c, token, e));
  }
}

/// Rows of padding become 0.
template <class T>
__global__ void __launch_bounds__(group_block)
    clear_padding_kernel(const PaddingMap padding, T* dlogits, std::int64_t tokens, std::int64_t n) {
  const std::int64_t token = ThreadGroup<32>::index();
  if (token >= tokens || !padding.has(token)) return;
  for (std::int64_t e = ThreadGroup<32>::lane(); e < n; e += 32) dlogits[token * n + e] = rounded<T>(0.0F);
}

}  // namespace

void route(const RouteArgs& args, StreamView stream) {
  const Choice c{args.logits.as<float>(),
                 args.probs.as<float>(),
                 data_of<std::int32_t>(args.experts),
                 args.weights.as<float>(),
                 args.probs.shape[0],
                 args.probs.shape[1],
                 args.experts.shape[1],
                 args.weigh,
                 padding_of(args.fields)};
  if (c.tokens > 0) {
    route_kernel<<<blocks_for(c.tokens, ThreadGroup<32>::per_block), group_block, 0, stream_of(stream)>>>(c);
    check_launch("route");
  }
  if (!args.counts || c.num_experts == 0) return;
  statistics_kernel<<<blocks_for(c.num_experts, 1), group_block, 0, stream_of(stream)>>>(c, args.counts.as<double>(),
                                                                                         args.sums.as<double>());
  check_launch("route statistics");
}

void route_backward(const RouteBackwardArgs& args, StreamView stream) {
  if (args.probs.shape[0] == 0) return;
  dispatch_dtype(args.dlogits.dtype, [&]<class T>(T) {
    const ChoiceGradient<T> c{args.dweights.as<float>(),
                              args.probs.as<float>(),
                              args.weights.as<float>(),
                              data_of<std::int32_t>(args.experts),
                              args.balance ? args.balance.as<double>() : nullptr,
                              data_of<T>(args.dlogits),
                              args.probs.shape[0],
                              args.probs.shape[1],
                              args.experts.shape[1],
                              args.weigh};
    route_backward_kernel<T>
        <<<blocks_for(c.tokens, ThreadGroup<32>::per_block), group_block, 0, stream_of(stream)>>>(c);
    check_launch("route_backward");
    const PaddingMap padding = padding_of(args.fields);
    if (padding.positions == nullptr) return;
    clear_padding_kernel<<<blocks_for(c.tokens, ThreadGroup<32>::per_block), group_block, 0, stream_of(stream)>>>(
        padding, c.dlogits, c.tokens, c.num_experts);
    check_launch("route_backward padding");
  });
}

}  // namespace tessera::kernels::cuda
