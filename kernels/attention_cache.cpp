// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_cache.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/attention_cache.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/threads.hpp"

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
                       side->shape == Shape({side->shape[0], s.kv_heads, cache.capacity(), s.head_dim}) &&
                       side->shape[0] >= s.batch && cache.capacity() < (std::int64_t{1} << 30),
                   "cache %s for %ld rows", side->shape.str().c_str(), s.batch);
}

}  // namespace

void cache_append(const CacheAppendArgs& args, StreamView stream) {
  const AttentionShape& s = args.shape;
  if (s.batch * s.tokens == 0) return;
  check(s, args.qkv, args.positions, args.cache);
  TESSERA_DISPATCH(args.qkv, cache_append, args);
}

std::size_t cached_attention_workspace(const AttentionShape& s, DType dtype, [[maybe_unused]] Device device) {
  if constexpr (cuda_built)
    if (device.kind == Device::Kind::cuda) return cuda::cached_attention_workspace(s);
  return static_cast<std::size_t>(threads() *
                                  host::cached_attention_scratch(s.heads / s.kv_heads, s.head_dim, size_of(dtype))) *
         size_of(stat_dtype(dtype));
}

void cached_attention(const CachedAttentionArgs& args, StreamView stream) {
  const AttentionShape& s = args.shape;
  if (s.batch * s.tokens == 0) return;
  check(s, args.qkv, args.positions, args.cache);
  TESSERA_ASSERT(args.positions && args.out && args.out.numel() == s.batch * s.tokens * s.heads * s.head_dim);
  TESSERA_DISPATCH(args.qkv, cached_attention, args);
}

}  // namespace tessera::kernels
