// Cached attention: shapes checked, (row, token, kv head) dealt to this rank's threads.
#include "kernels/attention_cache.hpp"

#include <algorithm>

#include "kernels/cuda/ops.hpp"
#include "kernels/host/attention_cache.hpp"
#include "kernels/host/parallel.hpp"

namespace tessera::kernels {
namespace {

void check(const AttentionShape& s, const TensorView& qkv, const TensorView& positions, const AttentionCache& cache) {
  const std::int64_t rows = s.batch * s.tokens;
  TESSERA_ASSERT(s.kv_heads > 0 && s.heads % s.kv_heads == 0 && s.head_dim > 0);
  TESSERA_ASSERT(qkv && qkv.numel() == rows * (s.heads + 2 * s.kv_heads) * s.head_dim, "qkv %s",
                 qkv.shape.str().c_str());
  TESSERA_ASSERT(!positions || (positions.numel() == rows && positions.dtype == DType::i32), "positions %s",
                 positions.shape.str().c_str());
  for (const TensorView* side : {&cache.keys, &cache.values})
    TESSERA_ASSERT(*side && side->dtype == qkv.dtype &&
                       side->shape == Shape({side->shape[0], s.kv_heads, cache.room(), s.head_dim}) &&
                       side->shape[0] >= s.batch,
                   "cache %s for %lld rows", side->shape.str().c_str(), static_cast<long long>(s.batch));
}

std::int64_t position_of(const TensorView& positions, std::int64_t row, std::int64_t tokens) {
  return positions ? positions.as<std::int32_t>()[row] : row % tokens;
}

}  // namespace

void cache_append(const CacheAppendArgs& args, StreamView stream) {
  const AttentionShape& s = args.shape;
  if (s.batch * s.tokens == 0) return;
  check(s, args.qkv, args.positions, args.cache);
  if constexpr (cuda_built)
    if (is_on_cuda(args.qkv)) return cuda::cache_append(args, stream);
  const std::int64_t room = args.cache.room(), d = s.head_dim, width = (s.heads + 2 * s.kv_heads) * d;
  host::dispatch_dtype(args.qkv.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* qkv = args.qkv.as<T>();
    T *keys = args.cache.keys.as<T>(), *values = args.cache.values.as<T>();
    host::parallel_ranges(s.batch * s.tokens, 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t b = row / s.tokens, position = position_of(args.positions, row, s.tokens);
        TESSERA_ASSERT(position >= 0 && position < room, "position %lld of %lld", static_cast<long long>(position),
                       static_cast<long long>(room));
        const T* k = qkv + row * width + s.heads * d;
        for (std::int64_t h = 0; h < s.kv_heads; ++h) {
          const std::int64_t to = ((b * s.kv_heads + h) * room + position) * d;
          std::copy_n(k + h * d, d, keys + to);
          std::copy_n(k + (s.kv_heads + h) * d, d, values + to);
        }
      }
    });
  });
}

std::size_t cached_attention_workspace(const AttentionShape& s, DType dtype) {
  return static_cast<std::size_t>(threads() *
                                  host::cached_attention_scratch(s.heads / s.kv_heads, s.head_dim, size_of(dtype))) *
         size_of(stat_dtype(dtype));
}

void cached_attention(const CachedAttentionArgs& args, StreamView stream) {
  const AttentionShape& s = args.shape;
  if (s.batch * s.tokens == 0) return;
  check(s, args.qkv, args.positions, args.cache);
  const std::int64_t room = args.cache.room(), d = s.head_dim, width = (s.heads + 2 * s.kv_heads) * d;
  TESSERA_ASSERT(args.positions && args.out && args.out.numel() == s.batch * s.tokens * s.heads * d);
  if constexpr (cuda_built)
    if (is_on_cuda(args.qkv)) return cuda::cached_attention(args, stream);
  TESSERA_ASSERT(args.workspace && args.workspace.nbytes() >= cached_attention_workspace(s, args.qkv.dtype));
  host::dispatch_dtype(args.qkv.dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t group = s.heads / s.kv_heads, tasks = s.batch * s.tokens * s.kv_heads;
    const std::int64_t parts = std::min<std::int64_t>(tasks, threads());
    host::parallel_parts(parts, [&](std::int64_t part) {
      auto* scratch =
          static_cast<Acc<T>*>(args.workspace.data) + part * host::cached_attention_scratch(group, d, sizeof(T));
      for (std::int64_t task = tasks * part / parts; task < tasks * (part + 1) / parts; ++task) {
        const std::int64_t row = task / s.kv_heads, h = task % s.kv_heads;
        const std::int64_t position = position_of(args.positions, row, s.tokens);
        TESSERA_ASSERT(position >= 0 && position < room, "position %lld of %lld", static_cast<long long>(position),
                       static_cast<long long>(room));
        const std::int64_t cached = (row / s.tokens * s.kv_heads + h) * room * d;
        host::cached_attention<T>().run({.q = args.qkv.as<T>() + row * width + h * group * d,
                                         .keys = args.cache.keys.as<T>() + cached,
                                         .values = args.cache.values.as<T>() + cached,
                                         .group = group,
                                         .head_dim = d,
                                         .count = position + 1,
                                         .scale = static_cast<Acc<T>>(args.scale),
                                         .out = args.out.as<T>() + (row * s.heads + h * group) * d,
                                         .scratch = scratch});
      }
    });
  });
}

}  // namespace tessera::kernels
