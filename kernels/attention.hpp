// SPDX-License-Identifier: Apache-2.0
#pragma once
// Causal self-attention without a (T, T) buffer: tiles and online softmax (Milakov, Gimelshein 2018; FlashAttention-2,
// Dao 2023, algorithms 1 and 2). Grouped-query: query head i reads kv head i / (heads / kv_heads). The score of query i
// and key j is s = scale·(q_i · k_j); out is Σ_j p_j·v_j over the keys that the query sees, with p_j = exp(s_j) / Σ
// exp(s) and lse = log Σ exp(s). What a call may ask for besides, each by itself or with the others:
//   documents     a sequence may hold several packed documents, told by positions: a token sees its own document only,
//                 and a document gets the bits it would get as a sequence of its own. The cost is that of the
//                 documents, not of T².
//   query offset  queries may be a part of the row that the keys are of: query t is token query_offset + t of the row
//   window        query i sees keys j with i - window < j <= i (transformers' sliding_window)
//   soft cap      s becomes cap·tanh(s / cap), before masks (Gemma 2, transformers' attn_logit_softcapping)
//   sinks         a learned logit of each head joins the denominator: p_j = exp(s_j) / (exp(sink) + Σ exp(s)), and lse
//                 has it too (gpt-oss, transformers' `sinks`)

#include <cstdint>
#include <string>

#include "kernels/attention_documents.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

inline constexpr std::int64_t max_device_head_dim = 256;  // of a device's kernels

/// Sizes and rules of a call: what kernels and their memory depend on, known to the plan of a run.
struct AttentionShape {
  std::int64_t batch = 0, tokens = 0;                  // B; T, queries of a row
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;  // nh, nk, d
  std::int64_t longest = 0;       // most tokens of a packed document; 0: a sequence is one document, without positions
  std::int64_t keys = 0;          // of a row, at least query_offset + T; 0: T
  std::int64_t query_offset = 0;  // the place of the first query among the keys
  std::int64_t window = 0;        // keys that a query sees at most, itself included; 0: all
  double soft_cap = 0;            // 0: none
  bool sinks = false;
  [[nodiscard]] std::int64_t num_keys() const { return keys > 0 ? keys : tokens; }  // Tk
};

/// Heads of q, k or v: head h of token t of row b begins at element (b·tokens + t)·pitch + h·d of `data`.
struct HeadRows {
  TensorView data;
  std::int64_t pitch = 0;
};
/// Of queries (B, T), keys and values (B, Tk), of one dtype; or their gradients. Each in memory of its own, or columns
/// of one matrix.
struct QkvHeads {
  HeadRows q, k, v;
};
/// Of a fused qkv (B, T, (nh + 2·nk)·d): q heads, then k heads, then v heads, per token.
[[nodiscard]] QkvHeads fused_qkv(const AttentionShape& shape, const TensorView& qkv);

/// What forward, backward and attention over a cache have in common.
struct AttentionArgs {
  AttentionShape shape;
  QkvHeads qkv;
  double scale = 1;       // positive
  TensorView sinks = {};  // (nh) of qkv's dtype, with AttentionShape::sinks
  /// (B, Tk) int32: a token's place in its document, which begins where it is 0, and with the sequence; absent: one
  /// document. With a cache (B, T): the places of the new tokens.
  TensorView positions = {};
  /// The same documents as a list, which cuDNN takes; absent: our own kernels, by positions. The same in backward.
  AttentionDocuments documents = {};
};

struct AttentionForwardArgs {
  AttentionArgs of;
  TensorView out;  // (B, T, nh·d)
  /// B·nh·T of stat_dtype: log of the softmax denominator, for backward, (B, nh, T) or,
  /// where cuDNN takes documents, (B, T, nh); absent: not written.
  TensorView lse;
  TensorView workspace;
};
void attention_forward(const AttentionForwardArgs& args, StreamView stream);
/// Throws Error (usage) if no kernel of the device takes the shape: the plan of every run asks.
[[nodiscard]] std::size_t attention_forward_workspace(const AttentionShape& shape, DType dtype,
                                                      Device device = host_device);

/// With P the probabilities, D = Σ over a row of dout·out and dS = P·(dout·vᵀ - D), times 1 - (s / cap)² of a capped
/// score s: dq = scale·dS·k, dk = scale·dSᵀ·q, dv = Pᵀ·dout, dsink = -Σ over rows of exp(sink - lse)·D.
struct AttentionBackwardArgs {
  AttentionArgs of;
  TensorView dout;  // (B, T, nh·d)
  TensorView out, lse;
  QkvHeads dqkv;  // overwritten, zero for keys that no query sees; must not be qkv
  /// (nh) of qkv's dtype, or fp32 with 16-bit qkv, one sum in a fixed order; with AttentionShape::sinks; absent: not
  /// wanted.
  TensorView dsinks = {};
  bool accumulate_dsinks = false;  // add to dsinks, or overwrite it
  TensorView workspace;
};
void attention_backward(const AttentionBackwardArgs& args, StreamView stream);
[[nodiscard]] std::size_t attention_backward_workspace(const AttentionShape& shape, DType dtype,
                                                       Device device = host_device);

/// The kernels that there are: the host's, our own for devices, and cuDNN's.
enum class AttentionBackend : unsigned char { host, own, cudnn };
/// Why a backend does not take calls of this shape, in words; "": it does. The only place that decides it: a call goes
/// to another backend or is refused with this reason, and no part of it is ever left out.
[[nodiscard]] std::string attention_refusal(AttentionBackend backend, const AttentionShape& shape, DType dtype);

/// Kernels for attention on devices. own: our kernels. cudnn: cuDNN's for the calls it supports (bf16 or fp16, heads of
/// 64 or 128, one document a sequence or a list of documents, backward's scratch within a bound, forward with `lse`),
/// and ours for the rest; throws if cuDNN refuses a call. cudnn_or_own: as cudnn, but a refused call is computed by our
/// kernels. Workspaces are those of the kernels in use: set before a run is planned; a later choice must not need a
/// larger one.
enum class DeviceAttention : unsigned char { own, cudnn, cudnn_or_own };
void set_device_attention(DeviceAttention kernels);
[[nodiscard]] DeviceAttention device_attention();
/// True if attention of packed rows wants a list of their documents, besides positions: on a device where cuDNN may
/// compute it.
[[nodiscard]] bool wants_document_list(DType dtype, Device device);
/// Throws Error (usage) with the reason if cuDNN cannot compute on the device: not built in, the library missing or too
/// old, or a device older than sm_90.
void require_cudnn_attention(Device device);
/// Calls computed by cuDNN in this process; and why it refused the last refused one ("": none was).
[[nodiscard]] std::int64_t cudnn_attention_calls();
[[nodiscard]] std::string cudnn_attention_refusal();

}  // namespace tessera::kernels
