// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention with a KV cache, for generation: the keys and values of new tokens are appended, and the queries attend to
// the whole cache. Keys are stored with rotary positions already applied.

#include "kernels/attention.hpp"

namespace tessera::kernels {

/// Keys and values of earlier passes: element (b, h, t) is that of token t of row b and kv head h.
struct AttentionCache {
  TensorView keys, values;  // (B, nk, capacity, d)
  [[nodiscard]] std::int64_t capacity() const { return keys.shape[2]; }
};

struct CacheAppendArgs {
  AttentionShape shape;  // of the new tokens
  HeadRows k, v;         // (B, T), nk heads
  TensorView positions;  // (B, T) int32, each below the cache's capacity; absent: 0 … T-1 in every row
  AttentionCache cache;  // entries `positions` of every row are overwritten
};
void cache_append(const CacheAppendArgs& args, StreamView stream);

struct CachedAttentionArgs {
  /// Of the new tokens, without `keys`, offset and documents: the query at position p sees entries 0 … p of the cache,
  /// or the last `window` of them. Keys and values are read only if the call appends.
  AttentionArgs of;
  AttentionCache cache;
  TensorView out;       // (B, T, nh·d)
  TensorView lse = {};  // (B, nh, T) of stat_dtype: log of the softmax denominator; absent: not written
  TensorView workspace;
  bool appends = false;  // first cache_append of the same arguments: for one token per row in the same kernel
};
/// Reads the keys of a row once per kv head: for few queries per row (usually one). A prompt without a cache before it
/// is faster with attention_forward. The order of sums depends on shapes and positions alone.
void cached_attention(const CachedAttentionArgs& args, StreamView stream);
/// On a device: for any capacity of the cache, and for fewer rows.
[[nodiscard]] std::size_t cached_attention_workspace(const AttentionShape& shape, DType dtype,
                                                     Device device = host_device);

}  // namespace tessera::kernels
