#pragma once
// Attention with a cache of keys and values, for generation: what is new in a pass is put behind what a row has seen,
// and the queries look at all of it. Keys enter as they are (rotated already, where positions rotate).

#include "kernels/attention.hpp"

namespace tessera::kernels {

/// What earlier passes left. Key or value of token t of row b and kv head h: element (b, h, t).
struct AttentionCache {
  TensorView keys, values;  // (B, nk, room, d)
  [[nodiscard]] std::int64_t room() const { return keys.shape[2]; }
};

struct CacheAppendArgs {
  AttentionShape shape;  // of this pass
  TensorView qkv;        // (B, T, (nh + 2·nk)·d)
  TensorView positions;  // (B, T) int32, each below the cache's room; absent: 0 … T-1 in every row
  AttentionCache cache;  // entries `positions` of every row are overwritten
};
void cache_append(const CacheAppendArgs& args, StreamView stream);

struct CachedAttentionArgs {
  AttentionShape shape;
  TensorView qkv;        // (B, T, (nh + 2·nk)·d); only its queries are read
  TensorView positions;  // (B, T) int32: the query at position p sees entries 0 … p
  AttentionCache cache;
  TensorView out;  // (B, T, nh·d)
  double scale = 1;
  TensorView workspace;
};
/// One pass over the keys of a row per kv head: for few queries per row (one, as a rule). Many of them, with nothing
/// before them, are attention_forward's.
void cached_attention(const CachedAttentionArgs& args, StreamView stream);
[[nodiscard]] std::size_t cached_attention_workspace(const AttentionShape& shape, DType dtype);

}  // namespace tessera::kernels
