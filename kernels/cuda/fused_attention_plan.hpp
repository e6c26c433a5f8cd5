// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which attention calls a fused cuDNN kernel takes, in how many parts, and the scratch it needs. Formulas, so that a
// plan needs neither library nor device.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/attention.hpp"
#include "kernels/attention_documents.hpp"

namespace tessera::kernels::cuda {

enum class AttentionPass : unsigned char { forward, backward };

/// A call of the library: so many sequences and key-value heads (with their query heads) at once, and its scratch.
struct FusedAttentionPlan {
  std::int64_t sequences = 0, kv_heads = 0;
  std::size_t workspace = 0;  // bytes, of backward
};

/// Bytes of scratch of one sequence of `s`, for `kv_heads` of its heads. Deterministic backward keeps dP, 2 bytes per
/// score of rounded-up tokens, and with grouped-query heads dK and dV of every head; as cuDNN 9.19 plans it for sm_90
/// (tests/kernels/cuda/attention_graph_test.cpp).
[[nodiscard]] inline std::size_t fused_sequence_bytes(const AttentionShape& s, std::int64_t kv_heads) {
  const auto up = [](std::int64_t n, std::int64_t multiple) { return (n + multiple - 1) / multiple * multiple; };
  const std::int64_t heads = s.heads / s.kv_heads * kv_heads;
  const std::int64_t scores = 2 * heads * up(s.tokens, 64) * up(s.tokens, 128);
  return static_cast<std::size_t>(scores + (s.heads == s.kv_heads ? 0 : 4 * heads * s.tokens * s.head_dim));
}

inline constexpr std::size_t fused_part_bytes = std::size_t{256} << 20;  // as many sequences at once as fit in
inline constexpr std::size_t fused_most_bytes = std::size_t{1} << 30;    // one sequence may take so much
/// Counters of the library's own, beside them: all that forward needs. A part has up to most_fused_documents.
inline constexpr std::int64_t most_fused_documents = 256;
[[nodiscard]] inline std::size_t fused_extra_bytes(std::int64_t documents) {
  return 32768 + static_cast<std::size_t>(documents) * 512;
}

/// Bytes of delta of a part, which precedes the scratch of backward.
[[nodiscard]] inline std::size_t fused_delta_bytes(const AttentionShape& s, const FusedAttentionPlan& plan) {
  return static_cast<std::size_t>(plan.sequences * s.heads / s.kv_heads * plan.kv_heads * s.tokens) * sizeof(float);
}

/// Sequences per forward call: kernels index elements with 32 bits.
[[nodiscard]] inline std::int64_t fused_forward_rows(const AttentionShape& s) {
  const std::int64_t numel = s.tokens * (s.heads + 2 * s.kv_heads) * s.head_dim;
  return std::min(s.batch, std::max<std::int64_t>(1, ((std::int64_t{1} << 31) - 1) / numel));
}

/// For sequences of s.tokens, at most s.batch at once. None: our own kernels take the call. Otherwise bf16 or fp16,
/// heads of 64 or 128, and scratch within the bound: a sequence that needs more goes by parts of its key-value heads,
/// as few as there can be.
[[nodiscard]] inline std::optional<FusedAttentionPlan> plan_fused_attention(const AttentionShape& s, DType dtype) {
  if ((dtype != DType::bf16 && dtype != DType::f16) || (s.head_dim != 64 && s.head_dim != 128) || s.batch == 0 ||
      s.tokens == 0)
    return std::nullopt;
  std::int64_t kv_heads = s.kv_heads;
  while (kv_heads > 0 && (s.kv_heads % kv_heads != 0 || fused_sequence_bytes(s, kv_heads) > fused_most_bytes))
    --kv_heads;
  if (kv_heads == 0) return std::nullopt;
  const std::size_t bytes = fused_sequence_bytes(s, kv_heads);
  const std::int64_t sequences =
      std::min(fused_forward_rows(s), std::max<std::int64_t>(1, static_cast<std::int64_t>(fused_part_bytes / bytes)));
  return FusedAttentionPlan{sequences, kv_heads,
                            static_cast<std::size_t>(sequences) * bytes + fused_extra_bytes(sequences)};
}

/// The shape of a call for documents of a group of `tokens`: as many as one part takes, whatever a micro-batch has, so
/// that a run has one plan for each group.
[[nodiscard]] inline AttentionShape documents_shape(AttentionShape s, std::int64_t tokens) {
  s.batch = most_fused_documents;
  s.tokens = tokens;
  if (const auto plan = plan_fused_attention(s, DType::bf16)) s.batch = plan->sequences;
  return s;
}

/// int32 of the arguments of one part: lengths, then offsets into qkv, out and lse, one more than documents each.
[[nodiscard]] inline std::int64_t document_argument_count(std::int64_t documents) { return 4 * (documents + 1); }

/// True if a micro-batch of this shape can be given as documents: the longest group that it may have is taken, and
/// offsets fit into int32.
[[nodiscard]] inline bool takes_documents(const AttentionShape& s, DType dtype) {
  std::int64_t longest = shortest_document_group;
  while (longest < s.longest) longest *= 2;
  const std::int64_t numel = s.batch * s.tokens * (s.heads + 2 * s.kv_heads) * s.head_dim;
  return numel < (std::int64_t{1} << 31) && plan_fused_attention(documents_shape(s, longest), dtype).has_value();
}

/// Bytes of the arguments and scratch of a micro-batch's documents, of any lengths.
[[nodiscard]] inline std::size_t fused_documents_bytes(const AttentionShape& s, DType dtype, AttentionPass pass) {
  std::size_t most = 0;
  for (std::int64_t tokens = shortest_document_group;; tokens *= 2) {
    const AttentionShape part = documents_shape(s, tokens);
    const FusedAttentionPlan plan = plan_fused_attention(part, dtype).value();
    const std::size_t scratch = pass == AttentionPass::backward ? fused_delta_bytes(part, plan) + plan.workspace
                                                                : fused_extra_bytes(plan.sequences);
    most = std::max(most, scratch + static_cast<std::size_t>(document_argument_count(plan.sequences)) * 4);
    if (tokens >= s.longest) return most + 1024;  // alignment of its three parts
  }
}

}  // namespace tessera::kernels::cuda
