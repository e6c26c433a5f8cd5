// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which attention calls a fused cuDNN kernel takes, in how many chunks of the batch, and the scratch it needs.
// Formulas, so that a plan needs neither library nor device.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/attention.hpp"

namespace tessera::kernels::cuda {

/// Sequences per call of the library, and its scratch for them.
struct FusedAttentionPlan {
  std::int64_t rows = 0;
  std::size_t workspace = 0;  // bytes, of backward
};

/// Bytes of scratch per sequence. Deterministic backward keeps dP, 2 bytes per score of rounded-up tokens, and with
/// grouped-query heads dK and dV of every head; as cuDNN 9.19 plans it for sm_90
/// (tests/kernels/cuda/attention_graph_test.cpp).
[[nodiscard]] inline std::size_t fused_row_bytes(const AttentionShape& s) {
  const auto up = [](std::int64_t n, std::int64_t multiple) { return (n + multiple - 1) / multiple * multiple; };
  const std::int64_t scores = 2 * s.heads * up(s.tokens, 64) * up(s.tokens, 128);
  return static_cast<std::size_t>(scores + (s.heads == s.kv_heads ? 0 : 4 * s.heads * s.tokens * s.head_dim));
}

inline constexpr std::size_t fused_chunk_bytes = std::size_t{256} << 20;  // as many sequences at once as fit in
inline constexpr std::size_t fused_most_bytes = std::size_t{1} << 30;     // one sequence may take so much
inline constexpr std::size_t fused_extra_bytes = 4096;  // counters of the library's own; all that forward needs

/// Bytes of delta of the whole batch, which precedes the scratch.
[[nodiscard]] inline std::size_t fused_delta_bytes(const AttentionShape& s) {
  return static_cast<std::size_t>(s.batch * s.heads * s.tokens) * sizeof(float);
}

/// Sequences per forward call: kernels index elements with 32 bits.
[[nodiscard]] inline std::int64_t fused_forward_rows(const AttentionShape& s) {
  const std::int64_t numel = s.tokens * (s.heads + 2 * s.kv_heads) * s.head_dim;
  return std::min(s.batch, std::max<std::int64_t>(1, ((std::int64_t{1} << 31) - 1) / numel));
}

/// None: our own kernels take the call. Otherwise bf16 or fp16, heads of 64 or 128, and scratch within the bound.
[[nodiscard]] inline std::optional<FusedAttentionPlan> plan_fused_attention(const AttentionShape& s, DType dtype) {
  if ((dtype != DType::bf16 && dtype != DType::f16) || (s.head_dim != 64 && s.head_dim != 128) || s.batch == 0 ||
      s.tokens == 0)
    return std::nullopt;
  const std::size_t row = fused_row_bytes(s);
  if (row > fused_most_bytes) return std::nullopt;
  const std::int64_t rows =
      std::min(fused_forward_rows(s), std::max<std::int64_t>(1, static_cast<std::int64_t>(fused_chunk_bytes / row)));
  return FusedAttentionPlan{rows, static_cast<std::size_t>(rows) * row + fused_extra_bytes};
}

}  // namespace tessera::kernels::cuda
