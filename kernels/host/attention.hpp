// SPDX-License-Identifier: Apache-2.0
#pragma once
// Causal attention on one thread. A task is a kv head of a document with all query heads that read it (forward: or a
// slice of their query blocks). host/attention.cpp assigns tasks to threads; no result depends on the assignment. Here
// a document is a sequence: one that shares its row of the batch with others is a problem of its own.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

/// Rows of a query block and of a key/value tile: multiples of every register tile (vec.hpp); the first divides the
/// second.
inline constexpr std::int64_t attention_q_block = 48, attention_kv_tile = 96;

/// Rows of the heads of q, k or v: from one token to the next `pitch` elements.
template <class T>
struct HeadRowsOf {
  T* data = nullptr;
  std::int64_t pitch = 0;
};

template <class T>
struct AttentionProblem {
  std::int64_t batch, tokens, heads, kv_heads, head_dim;  // tokens: queries of a sequence
  std::int64_t keys, offset;                              // of a sequence; the place of its first query among them
  std::int64_t window;                                    // keys that a query sees at most
  Acc<T> scale, soft_cap;                                 // soft_cap: 0: none
  const T* sinks = nullptr;                               // (nh), or null
  HeadRowsOf<const T> q, k, v;
  const T* out = nullptr;            // (B, T, nh·d); backward
  const T* dout = nullptr;           // (B, T, nh·d); backward
  T* out_w = nullptr;                // (B, T, nh·d), written by forward
  Acc<T>* lse = nullptr;             // (B, nh, T); null: not written
  Acc<T>* delta = nullptr;           // as lse: Σ over a row of dout·out, written by backward; null: not written
  HeadRowsOf<T> dq, dk, dv;          // written by backward
  std::int64_t lse_stride = tokens;  // from one head's lse to the next
};

template <class T>
struct Attention {
  /// Query blocks [first, last) of the group's heads, numbered head by head.
  void (*forward)(const AttentionProblem<T>& problem, std::int64_t b, std::int64_t kv_head, std::int64_t first,
                  std::int64_t last, Acc<T>* workspace);
  void (*backward)(const AttentionProblem<T>& problem, std::int64_t b, std::int64_t kv_head, Acc<T>* workspace);
};
TESSERA_TABLE(Attention, attention)

/// Workspace of one task in elements of Acc<T>, which has `element` bytes; the same for every instruction set. (With a
/// bf16 dot-product instruction bf16 needs less: K, V, Q and dO take half as much, or as much where both forms are
/// kept, and a third buffer of scores is smaller than what that saves of the keys.)
struct AttentionWorkspace {
  std::int64_t forward = 0, backward = 0;
};
[[nodiscard]] constexpr AttentionWorkspace attention_workspace(std::int64_t keys, std::int64_t head_dim,
                                                               std::size_t element) {
  constexpr std::int64_t m = attention_q_block, n = attention_kv_tile;
  const std::int64_t pad = static_cast<std::int64_t>(128 / element);  // columns of the widest register tile
  const std::int64_t t = (keys + n - 1) / n * n, d = (head_dim + pad - 1) / pad * pad;
  const std::int64_t scores = m * (n + pad), rows = 64;  // rows: m of one number each, rounded up
  return {.forward = 2 * t * d + 2 * m * d + scores + 2 * rows,
          .backward = 5 * t * d + 3 * m * d + 2 * scores + 2 * rows};
}

}  // namespace tessera::kernels::host
