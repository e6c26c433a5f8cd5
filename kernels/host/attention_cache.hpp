#pragma once
// Attention of one query group to cached keys, on one thread. Who runs which group is kernels/attention_cache.cpp's
// business.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

/// The query heads of one token that read one kv head.
template <class T>
struct CachedAttentionGroup {
  const T* q;              // (group, d)
  const T *keys, *values;  // (count, d) each
  std::int64_t group, head_dim, count;
  Acc<T> scale;
  T* out;           // (group, d)
  Acc<T>* scratch;  // cached_attention_scratch
};

template <class T>
struct CachedAttention {
  void (*run)(const CachedAttentionGroup<T>& group);
};
TESSERA_TABLE(CachedAttention, cached_attention)

/// Keys that are looked at before the softmax goes on; elements of scratch (their scores, a maximum and a sum for each
/// query, and of halves the output, until it is rounded).
inline constexpr std::int64_t cached_tile = 128;
[[nodiscard]] constexpr std::int64_t cached_attention_scratch(std::int64_t group, std::int64_t head_dim,
                                                              std::size_t element) {
  return (group * (cached_tile + 2 + (element == 2 ? head_dim : 0)) + 15) / 16 * 16;
}

}  // namespace tessera::kernels::host
