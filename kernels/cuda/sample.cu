// SPDX-License-Identifier: Apache-2.0
// A token of each row, drawn by a block. Weights are integers, units of 2^-44 of the largest, so that their sums do not
// depend on an order; the host adds them as floating-point numbers in one order. What the two may differ by is bounded,
// and where that could change the token, the row is undecided. Rows are read a few times, from L2.
#include "kernels/sample.hpp"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/sample.hpp"

namespace tessera::kernels::cuda {
namespace {

using Weight = unsigned long long;  // atomicAdd's type
constexpr int sample_threads = 1024, sample_warps = sample_threads / 32, sample_bins = 256;
constexpr Weight most_equals = 16;                 // of equal logits, each is a pass over the row
constexpr double weight_units = 17592186044416.0;  // 2^44: 2^19 of them fit into 63 bits

struct SampleCall {
  const float* x;
  const double* draws;
  std::int32_t* out;
  std::int64_t width, top_k;
  double temperature, top_p;
};

/// A key whose order is that of the logits; 0 and -0 are one.
__device__ __forceinline__ std::uint32_t key_of(float logit) {
  const auto bits = bits_as<std::uint32_t>(logit + 0.0F);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float logit_of(std::uint32_t key) {
  return bits_as<float>(key >> 31 != 0 ? key & 0x7fffffffu : ~key);
}

/// Counts keys.
struct One {
  __device__ Weight operator()(float) const { return 1; }
};
/// exp((logit - largest) / temperature).
struct Softmax {
  float largest;
  double inverse;  // of the temperature: a rounding more is far below a unit
  __device__ Weight operator()(float logit) const {
    const double x = mul(sub(static_cast<double>(logit), static_cast<double>(largest)), inverse);
    return x < -31.5 ? 0 : static_cast<Weight>(add(mul(exp(x), weight_units), 0.5));  // below half a unit
  }
};

/// f(logit, id) for a thread's share of a row, of which a few are read at once.
template <class F>
__device__ __forceinline__ void for_share(const SampleCall& c, const float* row, const F& f) {
  constexpr int at_once = 4;
  for (std::int64_t first = threadIdx.x; first < c.width; first += sample_threads * at_once) {
    float v[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const std::int64_t at = first + i * sample_threads;
      v[i] = at < c.width ? row[at] : 0.0F;
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i)
      if (const std::int64_t at = first + i * sample_threads; at < c.width) f(v[i], at);
  }
}

/// f(value, other) over the block's values, in every thread.
template <class V, class F>
__device__ V of_block(V value, V (&parts)[sample_warps], const F& f) {
#pragma unroll
  for (int width = 16; width > 0; width /= 2) value = f(value, __shfl_xor_sync(0xffffffffu, value, width));
  __syncthreads();  // the values before have been read
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  value = parts[0];
  for (int i = 1; i < sample_warps; ++i) value = f(value, parts[i]);
  return value;
}

/// A key, the weights of larger keys, and those of the key itself.
struct Selected {
  std::uint32_t key;
  Weight before, at;
};

/// From the largest key down, the first at which the sum of weights is at least `target`: by eight bits at a time.
template <class Weigh>
__device__ Selected select(const SampleCall& c, const float* row, std::uint32_t least, Weight target,
                           const Weigh& weigh, Weight (&sums)[sample_bins], Selected& found) {
  std::uint32_t prefix = 0;
  Weight before = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = static_cast<int>(threadIdx.x); i < sample_bins; i += sample_threads) sums[i] = 0;
    __syncthreads();
    std::uint32_t bin = 0;
    Weight pending = 0;  // of neighbours in one bin: fewer atomics
    for_share(c, row, [&](float logit, std::int64_t) {
      const std::uint32_t key = key_of(logit), now = key >> shift & 255u;
      if (key < least || (shift < 24 && (key ^ prefix) >> (shift + 8) != 0)) return;
      if (now != bin) {
        if (pending != 0) atomicAdd(&sums[bin], pending);
        bin = now;
        pending = 0;
      }
      pending += weigh(logit);
    });
    if (pending != 0) atomicAdd(&sums[bin], pending);
    __syncthreads();
    if (threadIdx.x == 0) {
      int at = sample_bins - 1;
      Weight sum = before;
      for (; at > 0 && sum + sums[at] < target; --at) sum += sums[at];
      found = {prefix | static_cast<std::uint32_t>(at) << shift, sum, sums[at]};
    }
    __syncthreads();
    prefix = found.key;
    before = found.before;
  }
  const Selected result = found;
  __syncthreads();
  return result;
}

/// Whether a token's share [low, high) has `target` in it, however the sums were rounded: they differ by less than
/// `slack`. The first share begins at 0 exactly.
__device__ __forceinline__ bool is_decided(Weight target, Weight low, Weight high, Weight slack) {
  return target >= low && target < high && (low == 0 || target - low >= slack) && high - target >= slack;
}

/// What the host's sums and these may differ by: half a unit of each weight and a few roundings of each sum, four
/// times.
__device__ __forceinline__ Weight slack_of(std::int64_t width, Weight total) {
  const auto n = static_cast<double>(width);
  return static_cast<Weight>(4 * (n + static_cast<double>(total) * n * 0x1p-52)) + 1;
}

/// The draw among all keys from `least` on, in the order of ids: a thread has a run of ids.
__device__ std::int32_t draw_by_id(const SampleCall& c, const float* row, std::uint32_t least, const Softmax& weigh,
                                   double draw, Weight (&runs)[sample_threads], std::int32_t& chosen) {
  const std::int64_t each = (c.width + sample_threads - 1) / sample_threads, first = threadIdx.x * each,
                     last = first + each < c.width ? first + each : c.width;
  Weight own = 0;
  for (std::int64_t i = first; i < last; ++i)
    if (key_of(row[i]) >= least) own += weigh(row[i]);
  runs[threadIdx.x] = own;
  if (threadIdx.x == 0) chosen = undecided_token;
  __syncthreads();
  Weight total = 0, low = 0;
  for (int i = 0; i < sample_threads; ++i) {
    if (i == static_cast<int>(threadIdx.x)) low = total;
    total += runs[i];
  }
  const auto target = static_cast<Weight>(mul(draw, static_cast<double>(total)));
  if (target >= low && target < low + own)  // one thread
    for (std::int64_t i = first; i < last; ++i) {
      if (key_of(row[i]) < least) continue;
      const Weight weight = weigh(row[i]);
      if (target >= low + weight) {
        low += weight;
        continue;
      }
      if (is_decided(target, low, low + weight, slack_of(c.width, total))) chosen = static_cast<std::int32_t>(i);
      break;
    }
  __syncthreads();
  return chosen;
}

/// The first id after `after` with this key.
__device__ std::int32_t next_id(const SampleCall& c, const float* row, std::uint32_t key, std::int32_t after) {
  __shared__ std::int32_t ids[sample_warps];
  auto id = static_cast<std::int32_t>(c.width);
  for_share(c, row, [&](float logit, std::int64_t i) {
    if (key_of(logit) == key && i > after && i < id) id = static_cast<std::int32_t>(i);
  });
  return of_block(id, ids, [](std::int32_t a, std::int32_t b) { return a < b ? a : b; });
}

/// The draw among the fewest of the largest with the share top_p, in the order of the host: largest first.
__device__ std::int32_t draw_by_size(const SampleCall& c, const float* row, std::uint32_t least, const Softmax& weigh,
                                     double draw, Weight (&sums)[sample_bins], Weight (&parts)[sample_warps],
                                     Selected& found) {
  Weight own = 0;
  for_share(c, row, [&](float logit, std::int64_t) {
    if (key_of(logit) >= least) own += weigh(logit);
  });
  const Weight total = of_block(own, parts, [](Weight a, Weight b) { return a + b; }), slack = slack_of(c.width, total),
               wanted = static_cast<Weight>(mul(c.top_p, static_cast<double>(total)));
  const Selected cut = select(c, row, least, wanted, weigh, sums, found);
  const Weight cut_weight = weigh(logit_of(cut.key));
  if (cut_weight == 0) return undecided_token;
  Weight equals = wanted > cut.before ? (wanted - cut.before + cut_weight - 1) / cut_weight : 1;
  if (equals == 0) equals = 1;
  const Weight kept = cut.before + equals * cut_weight, low = kept - cut_weight;
  if ((low != 0 && wanted < low + slack) || kept < wanted + slack) return undecided_token;

  const auto target = static_cast<Weight>(mul(draw, static_cast<double>(kept)));
  const Selected drawn = select(c, row, least, target + 1, weigh, sums, found);
  const Weight weight = weigh(logit_of(drawn.key));
  if (weight == 0) return undecided_token;
  const Weight number = (target - drawn.before) / weight, from = drawn.before + number * weight;
  if (number >= most_equals || !is_decided(target, from, from + weight, slack)) return undecided_token;
  std::int32_t id = -1;
  for (Weight n = 0; n <= number; ++n) id = next_id(c, row, drawn.key, id);
  return id;
}

__global__ void __launch_bounds__(sample_threads) sample_kernel(const SampleCall c) {
  __shared__ Weight runs[sample_threads];
  __shared__ Weight sums[sample_bins];
  __shared__ Weight parts[sample_warps];
  __shared__ float values[sample_warps];
  __shared__ Selected found;
  __shared__ std::int32_t chosen;
  const float* const row = c.x + static_cast<std::int64_t>(blockIdx.x) * c.width;
  float largest = -INFINITY, probe = 0;
  for_share(c, row, [&](float logit, std::int64_t) {
    largest = fmaxf(largest, logit);
    probe += 0 * logit;
  });
  largest = of_block(largest, values, [](float a, float b) { return fmaxf(a, b); });
  probe = of_block(probe, values, [](float a, float b) { return a + b; });
  std::int32_t id = -1;
  if (probe == 0) {
    std::uint32_t least = 0;
    if (c.top_k > 0 && c.top_k < c.width)
      least = select(c, row, 0, static_cast<Weight>(c.top_k), One{}, sums, found).key;
    const Softmax weigh{largest, div(1.0, c.temperature)};
    const double draw = c.draws[blockIdx.x];
    id = c.top_p < 1 ? draw_by_size(c, row, least, weigh, draw, sums, parts, found)
                     : draw_by_id(c, row, least, weigh, draw, runs, chosen);
  }
  if (threadIdx.x == 0) c.out[blockIdx.x] = id;
}

}  // namespace

void sample(const SampleArgs& args, StreamView stream) {
  const SampleCall call{data_of<float>(args.x),
                        static_cast<const double*>(args.draws.data),
                        data_of<std::int32_t>(args.out),
                        args.x.shape[1],
                        args.rule.top_k,
                        args.rule.temperature,
                        args.rule.top_p};
  sample_kernel<<<blocks_for(args.x.shape[0], 1), sample_threads, 0, stream_of(stream)>>>(call);
  check_launch("sample");
}

}  // namespace tessera::kernels::cuda
