// SPDX-License-Identifier: Apache-2.0
// Cached attention: threads split (row, token, kv head).
#include "kernels/attention_cache.hpp"

#include <algorithm>

#include "kernels/host/attention_cache.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/host/parallel.hpp"

namespace tessera::kernels::host {
namespace {

/// Fails unless the cache has an entry for the position, or is a ring of `ring` entries or more.
void check_position(std::int64_t position, std::int64_t capacity, const AttentionShape& s, std::int64_t ring) {
  TESSERA_ASSERT(position >= 0 && (position < capacity || (s.window > 0 && capacity >= ring)), "position %ld of %ld",
                 position, capacity);
}

}  // namespace

void cache_append(const CacheAppendArgs& args) {
  const AttentionShape& s = args.shape;
  const std::int64_t capacity = args.cache.capacity(), d = s.head_dim;
  dispatch_dtype(args.k.data.dtype, [&]<class T>(T) {
    const T *k = args.k.data.as<T>(), *v = args.v.data.as<T>();
    T *keys = args.cache.keys.as<T>(), *values = args.cache.values.as<T>();
    parallel_ranges(s.batch * s.tokens, 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t b = row / s.tokens, position = args.positions ? args.positions.as<std::int32_t>()[row]
                                                                         : args.first + row % s.tokens;
        check_position(position, capacity, s, std::max(s.window, s.tokens));
        for (std::int64_t h = 0; h < s.kv_heads; ++h) {
          const std::int64_t to = ((b * s.kv_heads + h) * capacity + position % capacity) * d;
          std::copy_n(k + row * args.k.pitch + h * d, d, keys + to);
          std::copy_n(v + row * args.v.pitch + h * d, d, values + to);
        }
      }
    });
  });
}

void cached_attention(const CachedAttentionArgs& args) {
  const AttentionArgs& of = args.of;
  const AttentionShape& s = of.shape;
  if (args.appends)
    cache_append({.shape = s, .k = of.qkv.k, .v = of.qkv.v, .positions = of.positions, .cache = args.cache});
  const std::int64_t capacity = args.cache.capacity(), d = s.head_dim;
  const DType dtype = of.qkv.q.data.dtype;
  TESSERA_ASSERT(args.workspace && args.workspace.nbytes() >= cached_attention_workspace(s, dtype));
  dispatch_dtype(dtype, [&]<class T>(T) {
    const std::int64_t group = s.heads / s.kv_heads, tasks = s.batch * s.tokens * s.kv_heads;
    const std::int64_t parts = std::min<std::int64_t>(tasks, threads());
    parallel_parts(parts, [&](std::int64_t part) {
      auto* scratch = static_cast<Acc<T>*>(args.workspace.data) + part * cached_attention_scratch(group, d, sizeof(T));
      for (std::int64_t task = tasks * part / parts; task < tasks * (part + 1) / parts; ++task) {
        const std::int64_t row = task / s.kv_heads, h = task % s.kv_heads;
        const std::int64_t position = of.positions.as<std::int32_t>()[row];
        const std::int64_t count = s.window > 0 ? std::min(s.window, position + 1) : position + 1;
        check_position(position, capacity, s, s.window + s.tokens - 1);
        const std::int64_t cached = (row / s.tokens * s.kv_heads + h) * capacity * d;
        const std::int64_t lse = (row / s.tokens * s.heads + h * group) * s.tokens + row % s.tokens;
        cached_attention<T>().run({.q = of.qkv.q.data.as<T>() + row * of.qkv.q.pitch + h * group * d,
                                   .keys = args.cache.keys.as<T>() + cached,
                                   .values = args.cache.values.as<T>() + cached,
                                   .group = group,
                                   .head_dim = d,
                                   .first = (position + 1 - count) % capacity,
                                   .count = count,
                                   .capacity = capacity,
                                   .scale = static_cast<Acc<T>>(of.scale),
                                   .soft_cap = static_cast<Acc<T>>(s.soft_cap),
                                   .sinks = s.sinks ? of.sinks.as<T>() + h * group : nullptr,
                                   .out = args.out.as<T>() + (row * s.heads + h * group) * d,
                                   .lse = args.lse ? args.lse.as<Acc<T>>() + lse : nullptr,
                                   .lse_stride = s.tokens,
                                   .scratch = scratch});
      }
    });
  });
}

}  // namespace tessera::kernels::host
