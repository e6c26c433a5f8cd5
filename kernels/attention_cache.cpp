// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_cache.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/attention_cache.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/threads.hpp"

namespace tessera::kernels {
namespace {

void check_cache(const AttentionShape& s, const TensorView& positions, const AttentionCache& cache) {
  const std::int64_t rows = s.batch * s.tokens;
  TESSERA_ASSERT(s.kv_heads > 0 && s.heads % s.kv_heads == 0 && s.head_dim > 0);
  TESSERA_ASSERT(!positions || (positions.numel() == rows && positions.dtype == DType::i32), "positions %s",
                 positions.shape.str().c_str());
  for (const TensorView* side : {&cache.keys, &cache.values})
    TESSERA_ASSERT(*side && side->dtype == cache.keys.dtype &&
                       side->shape == Shape({side->shape[0], s.kv_heads, cache.capacity(), s.head_dim}) &&
                       side->shape[0] >= s.batch && cache.capacity() < (std::int64_t{1} << 30),
                   "cache %s for %ld rows", side->shape.str().c_str(), s.batch);
}

void check_new(const HeadRows& heads, std::int64_t rows, std::int64_t width, const AttentionCache& cache) {
  TESSERA_ASSERT(heads.data && heads.data.dtype == cache.keys.dtype && heads.pitch >= width &&
                     heads.data.numel() >= (rows - 1) * heads.pitch + width,
                 "new tokens %s, %ld apart", heads.data.shape.str().c_str(), heads.pitch);
}

}  // namespace

void cache_append(const CacheAppendArgs& args, StreamView stream) {
  const AttentionShape& s = args.shape;
  if (s.batch * s.tokens == 0) return;
  check_cache(s, args.positions, args.cache);
  for (const HeadRows* heads : {&args.k, &args.v})
    check_new(*heads, s.batch * s.tokens, s.kv_heads * s.head_dim, args.cache);
  TESSERA_DISPATCH(args.k.data, cache_append, args);
}

std::size_t cached_attention_workspace(const AttentionShape& s, DType dtype, [[maybe_unused]] Device device) {
  if constexpr (cuda_built)
    if (device.kind == Device::Kind::cuda) return cuda::cached_attention_workspace(s);
  return static_cast<std::size_t>(threads() *
                                  host::cached_attention_scratch(s.heads / s.kv_heads, s.head_dim, size_of(dtype))) *
         size_of(stat_dtype(dtype));
}

void cached_attention(const CachedAttentionArgs& args, StreamView stream) {
  const AttentionShape& s = args.of.shape;
  if (s.batch * s.tokens == 0) return;
  check_cache(s, args.of.positions, args.cache);
  check_new(args.of.qkv.q, s.batch * s.tokens, s.heads * s.head_dim, args.cache);
  if (args.appends)
    for (const HeadRows* heads : {&args.of.qkv.k, &args.of.qkv.v})
      check_new(*heads, s.batch * s.tokens, s.kv_heads * s.head_dim, args.cache);
  TESSERA_ASSERT(s.num_keys() == s.tokens && s.query_offset == 0 && s.window >= 0 && s.soft_cap >= 0);
  TESSERA_ASSERT(args.of.positions && args.out && args.out.numel() == s.batch * s.tokens * s.heads * s.head_dim);
  TESSERA_ASSERT(!args.lse || (args.lse.numel() == s.batch * s.tokens * s.heads &&
                               args.lse.dtype == stat_dtype(args.cache.keys.dtype)),
                 "lse %s", args.lse.shape.str().c_str());
  TESSERA_ASSERT(
      !s.sinks || (args.of.sinks && args.of.sinks.numel() == s.heads && args.of.sinks.dtype == args.cache.keys.dtype),
      "sinks %s", args.of.sinks.shape.str().c_str());
  const AttentionBackend backend = is_on_cuda(args.out) ? AttentionBackend::own : AttentionBackend::host;
  if (const std::string why = attention_refusal(backend, s, args.cache.keys.dtype); !why.empty())
    throw Error(ExitCode::usage, why);
  TESSERA_DISPATCH(args.of.qkv.q.data, cached_attention, args);
}

}  // namespace tessera::kernels
