// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention of one query group to cached keys, on one thread. host/attention_cache.cpp assigns groups to threads.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

/// Query heads of one token that read the same kv head.
template <class T>
struct CachedAttentionGroup {
  const T* q;  // (group, d)
  const T *keys,
      *values;  // (capacity, d) each, of which `count` from `first` on are read; after the last one, the first
  std::int64_t group, head_dim, first, count, capacity;
  Acc<T> scale, soft_cap;  // soft_cap: 0: none
  const T* sinks;          // (group), or null
  T* out;                  // (group, d)
  Acc<T>* lse;             // one of every head lse_stride apart; null: not written
  std::int64_t lse_stride;
  Acc<T>* scratch;  // cached_attention_scratch
  /// The entry of key i < count.
  [[nodiscard]] std::int64_t entry(std::int64_t i) const {
    return first + i < capacity ? first + i : first + i - capacity;
  }
};

template <class T>
struct CachedAttention {
  void (*run)(const CachedAttentionGroup<T>& group);
};
TESSERA_TABLE(CachedAttention, cached_attention)

/// Keys of a tile of the online softmax; elements of scratch: scores, and a maximum and a sum for each query; for
/// 16-bit T the fp32 output too.
inline constexpr std::int64_t cached_tile = 128;
[[nodiscard]] constexpr std::int64_t cached_attention_scratch(std::int64_t group, std::int64_t head_dim,
                                                              std::size_t element) {
  return (group * (cached_tile + 2 + (element == 2 ? head_dim : 0)) + 15) / 16 * 16;
}

}  // namespace tessera::kernels::host
