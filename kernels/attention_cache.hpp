// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention with a KV cache, for generation: the keys and values of new tokens are appended, and the queries attend to
// the whole cache. Keys are stored with rotary positions already applied.

#include "kernels/attention.hpp"

namespace tessera::kernels {

/// Keys and values of earlier passes: entry (b, h, e) is that of the last token of row b whose position is e modulo the
/// capacity. A row has more tokens than the capacity (a ring) only with a window, which the ring must hold.
struct AttentionCache {
  TensorView keys, values;  // (B, nk, capacity, d)
  [[nodiscard]] std::int64_t capacity() const { return keys.shape[2]; }
};

struct CacheAppendArgs {
  AttentionShape shape;    // of the new tokens
  HeadRows k, v;           // (B, T), nk heads
  TensorView positions;    // (B, T) int32; absent: first … first + T-1 in every row
  AttentionCache cache;    // the entries of these positions are overwritten; a ring has at least T
  std::int64_t first = 0;  // a position
};
void cache_append(const CacheAppendArgs& args, StreamView stream);

struct CachedAttentionArgs {
  /// Of the new tokens, without `keys`, offset and documents: the query at position p sees entries 0 … p of the cache,
  /// or the last `window` of them: a ring has at least window + T - 1. Keys and values are read only if the call
  /// appends.
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
