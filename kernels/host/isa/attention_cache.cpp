// SPDX-License-Identifier: Apache-2.0
// Online softmax over tiles of cached keys: keys, then values, are read once for all queries of the group. Bound by
// these reads.

#include "kernels/host/attention_cache.hpp"
#include "kernels/host/isa/horizontal_sum.hpp"
#include "kernels/host/isa/math.hpp"
#include "kernels/host/isa/vec.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

constexpr std::int64_t keys_at_once = 4;  // independent sums hide each other's latency

/// scores[j] = scale · q·k[j] for j in [0, N).
template <class T, int N>
inline void dots(const T* q, const T* keys, std::int64_t d, Acc<T> scale, Acc<T>* scores) {
  constexpr std::int64_t w = vec_width<T>;
  Vec<T> sums[N];
#pragma GCC unroll 4
  for (int j = 0; j < N; ++j) sums[j] = Vec<T>{};
  std::int64_t c = 0;
  for (; c + w <= d; c += w) {
    const Vec<T> x = load<T>(q + c);
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) sums[j] = multiply_add<T>(x, load<T>(keys + j * d + c), sums[j]);
  }
  for (int j = 0; j < N; ++j) {
    Acc<T> sum = sum_of<T>(sums[j]);
    for (std::int64_t rest = c; rest < d; ++rest) sum += widen(q[rest]) * widen(keys[j * d + rest]);
    scores[j] = scale * sum;
  }
}

template <class A>
[[gnu::noinline]] inline void soft_cap(A* scores, std::int64_t n, A cap) {
  for (std::int64_t j = 0; j < n; ++j) scores[j] = cap * tanh(scores[j] / cap);
}

/// One query and a tile of keys: updates the running maximum and sum, and rescales the output to the new maximum.
template <class T>
inline void online_softmax(T* scores, std::int64_t n, T& largest, T& sum, T* out, std::int64_t d) {
  T tile = scores[0];
#pragma omp simd reduction(max : tile)
  for (std::int64_t j = 0; j < n; ++j) tile = scores[j] > tile ? scores[j] : tile;
  const bool first = sum == 0;
  const T now = first || tile > largest ? tile : largest;
  T tile_sum = 0;
#pragma omp simd reduction(+ : tile_sum)
  for (std::int64_t j = 0; j < n; ++j) {
    scores[j] = exp(scores[j] - now);
    tile_sum += scores[j];
  }
  if (!first && now != largest) {
    const T rescale = exp(largest - now);
    sum *= rescale;
#pragma omp simd
    for (std::int64_t c = 0; c < d; ++c) out[c] *= rescale;
  }
  sum += tile_sum;
  largest = now;
}

/// The fp32 accumulator of the output: the output itself, or scratch for 16-bit T.
template <class T>
inline Acc<T>* output(const CachedAttentionGroup<T>& g, Acc<T>* scratch) {
  if constexpr (is_half<T>) return scratch;
  else return (void)scratch, g.out;
}

template <class T>
void run(const CachedAttentionGroup<T>& g) {
  const std::int64_t d = g.head_dim;
  using A = Acc<T>;
  A *const largest = g.scratch + g.group * cached_tile, *const sums = largest + g.group;
  A* const outs = output<T>(g, sums + g.group);  // (group, d)
  for (std::int64_t i = 0; i < g.group; ++i) {   // a sink is as a key whose value is zero
    largest[i] = g.sinks ? widen(g.sinks[i]) : 0;
    sums[i] = g.sinks ? 1 : 0;
  }
  for (std::int64_t c = 0; c < g.group * d; ++c) outs[c] = 0;
  for (std::int64_t first = 0; first < g.count; first += cached_tile) {
    const std::int64_t n = g.count - first < cached_tile ? g.count - first : cached_tile;
    for (std::int64_t j = 0, step = 0; j < n; j += step) {
      const std::int64_t entry = g.entry(first + j);
      step = j + keys_at_once <= n && entry + keys_at_once <= g.capacity ? keys_at_once : 1;
      for (std::int64_t i = 0; i < g.group; ++i) {
        A* const scores = g.scratch + i * cached_tile + j;
        const T *const q = g.q + i * d, *const keys = g.keys + entry * d;
        if (step == keys_at_once) dots<T, keys_at_once>(q, keys, d, g.scale, scores);
        else dots<T, 1>(q, keys, d, g.scale, scores);
      }
    }
    if (g.soft_cap > 0)
      for (std::int64_t i = 0; i < g.group; ++i) soft_cap(g.scratch + i * cached_tile, n, g.soft_cap);
    for (std::int64_t i = 0; i < g.group; ++i)
      online_softmax(g.scratch + i * cached_tile, n, largest[i], sums[i], outs + i * d, d);
    for (std::int64_t j = 0; j < n; ++j) {
      const T* const value = g.values + g.entry(first + j) * d;
      for (std::int64_t i = 0; i < g.group; ++i) {
        A* const out = outs + i * d;
        const A p = widen(T(g.scratch[i * cached_tile + j]));  // rounded, as tensor cores do
        for_each_register<T>(d, [=](std::int64_t c, const auto& part) {
          part.store(out + c, madd(all<Vec<T>>(p), part.load(value + c), part.load(out + c)));
        });
      }
    }
  }
  for (std::int64_t i = 0; i < g.group; ++i) {
    const A inverse = 1 / sums[i], *const from = outs + i * d;
    T* const to = g.out + i * d;
    for_each_register<T>(d,
                         [=](std::int64_t c, const auto& part) { part.store(to + c, part.load(from + c) * inverse); });
    if (g.lse) g.lse[i * g.lse_stride] = largest[i] + log(sums[i]) + (sums[i] - sums[i]);  // log() loses NaN
  }
}

}  // namespace

TESSERA_TABLE_DEFINE(CachedAttention, cached_attention, run<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
