// SPDX-License-Identifier: Apache-2.0
// Attention with a KV cache, for generation: one warp per query head, 32 keys at a time. Bound by reading the keys.
#include "kernels/attention_cache.hpp"

#include "kernels/cuda/attention_tiles.hpp"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/thread_group.cuh"

namespace tessera::kernels::cuda {
namespace {

constexpr int max_columns = max_device_head_dim / 32;  // per lane

template <class T>
struct CacheCall {
  HeadMap map;
  std::int64_t capacity;
  const std::int32_t* positions;  // (B, T), or null: 0 … T-1
  const T* qkv;
  T *keys, *values, *out = nullptr;
  float scale = 1;
  /// Offset of the keys of a row's head.
  TESSERA_HD std::int64_t cached(std::int64_t b, std::int64_t kv_head) const {
    return (b * map.kv_heads + kv_head) * capacity * map.head_dim;
  }
  TESSERA_HD std::int64_t position(std::int64_t row) const { return positions ? positions[row] : row % map.tokens; }
};

/// One thread per element of the new keys and values. Positions outside the cache are not written.
template <class T>
__global__ void __launch_bounds__(256) append_kernel(const CacheCall<T> c) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x, d = c.map.head_dim,
                     width = c.map.kv_heads * d;
  if (i >= c.map.batch * c.map.tokens * width) return;
  const std::int64_t row = i / width, kv_head = i % width / d, column = i % d, b = row / c.map.tokens,
                     t = row % c.map.tokens;
  const std::int64_t position = c.position(row);
  if (position < 0 || position >= c.capacity) return;
  const std::int64_t to = c.cached(b, kv_head) + position * d + column;
  c.keys[to] = c.qkv[c.map.k(b, kv_head, t) + column];
  c.values[to] = c.qkv[c.map.v(b, kv_head, t) + column];
}

template <class T>
__global__ void __launch_bounds__(group_block, 2) cached_kernel(const CacheCall<T> c) {
  const std::int64_t index = ThreadGroup<32>::index();
  if (index >= c.map.batch * c.map.tokens * c.map.heads) return;
  const int lane = ThreadGroup<32>::lane();
  const std::int64_t head = index % c.map.heads, row = index / c.map.heads, b = row / c.map.tokens,
                     t = row % c.map.tokens, d = c.map.head_dim;
  const std::int64_t cached = c.cached(b, head / c.map.group()), asked = c.position(row),
                     last = asked < c.capacity ? asked : c.capacity - 1;
  const T* const q = c.qkv + c.map.q(b, head, t);
  float out[max_columns] = {}, max = -INFINITY, sum = 0;
  for (std::int64_t first = 0; first <= last; first += 32) {
    const std::int64_t key = first + lane;
    float score = -INFINITY;
    if (key <= last) {
      const T* const k = c.keys + cached + key * d;
      float dot = 0;
#pragma unroll 4
      for (std::int64_t i = 0; i < d; ++i) dot = fmaf(to_float(q[i]), to_float(k[i]), dot);
      score = dot * c.scale;
    }
    const float now = fmaxf(max, warp_max(score)), base = now == -INFINITY ? 0.0F : now;
    const float p = expf(score - base), rescale = expf(max - base);
    sum = fmaf(sum, rescale, warp_sum(p));
    max = now;
#pragma unroll
    for (int i = 0; i < max_columns; ++i) out[i] *= rescale;
    const int count = last - first < 31 ? static_cast<int>(last - first) + 1 : 32;
#pragma unroll 2
    for (int j = 0; j < count; ++j) {
      const float w = to_float(rounded<T>(__shfl_sync(0xffffffffu, p, j)));
      const T* const v = c.values + cached + (first + j) * d;
#pragma unroll
      for (int i = 0; i < max_columns; ++i)
        if (lane + 32 * i < d) out[i] = fmaf(w, to_float(v[lane + 32 * i]), out[i]);
    }
  }
  const float inverse = div(1.0F, sum);
#pragma unroll
  for (int i = 0; i < max_columns; ++i)
    if (lane + 32 * i < d) c.out[c.map.out(b, head, t) + lane + 32 * i] = rounded<T>(out[i] * inverse);
}

template <class T>
CacheCall<T> call_of(const AttentionShape& s, const TensorView& qkv, const TensorView& positions,
                     const AttentionCache& cache) {
  TESSERA_ASSERT(s.head_dim <= max_device_head_dim, "heads of %ld", s.head_dim);
  return {.map = {s.batch, s.tokens, s.heads, s.kv_heads, s.head_dim},
          .capacity = cache.capacity(),
          .positions = positions ? data_of<std::int32_t>(positions) : nullptr,
          .qkv = data_of<T>(qkv),
          .keys = data_of<T>(cache.keys),
          .values = data_of<T>(cache.values)};
}

}  // namespace

void cache_append(const CacheAppendArgs& args, StreamView stream) {
  const AttentionShape& s = args.shape;
  dispatch_dtype(args.qkv.dtype, [&]<class T>(T) {
    append_kernel<T><<<blocks_for(s.batch * s.tokens * s.kv_heads * s.head_dim, 256), 256, 0, stream_of(stream)>>>(
        call_of<T>(s, args.qkv, args.positions, args.cache));
    check_launch("cache_append");
  });
}

void cached_attention(const CachedAttentionArgs& args, StreamView stream) {
  const AttentionShape& s = args.shape;
  dispatch_dtype(args.qkv.dtype, [&]<class T>(T) {
    CacheCall<T> call = call_of<T>(s, args.qkv, args.positions, args.cache);
    call.out = data_of<T>(args.out);
    call.scale = static_cast<float>(args.scale);
    cached_kernel<T>
        <<<blocks_for(s.batch * s.tokens * s.heads, ThreadGroup<32>::per_block), group_block, 0, stream_of(stream)>>>(
            call);
    check_launch("cached_attention");
  });
}

}  // namespace tessera::kernels::cuda
