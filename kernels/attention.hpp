// SPDX-License-Identifier: Apache-2.0
#pragma once
// Causal self-attention without a (T, T) buffer: tiles and online softmax (Milakov, Gimelshein 2018; FlashAttention-2,
// Dao 2023, algorithms 1 and 2). Grouped-query: query head i reads kv head i / (heads / kv_heads). Scores are scaled by
// `scale`, a positive number (head_dim^-0.5). A sequence may hold several packed documents, told by positions: a token
// attends to its own document only, and a document gets the bits it would get as a sequence of its own. The cost is
// that of the documents, not of T².

#include <cstdint>
#include <string>

#include "kernels/attention_documents.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

inline constexpr std::int64_t max_device_head_dim = 256;  // of a device's kernels

struct AttentionShape {
  std::int64_t batch = 0, tokens = 0;                  // B, T
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;  // nh, nk, d
  std::int64_t longest = 0;  // most tokens of a packed document; 0: a sequence is one document, without positions
};

struct AttentionForwardArgs {
  AttentionShape shape;
  TensorView qkv;  // (B, T, (nh + 2·nk)·d): q heads, then k heads, then v heads, per token
  TensorView out;  // (B, T, nh·d)
  /// B·nh·T of stat_dtype: log of the softmax denominator, for backward, (B, nh, T) or, where cuDNN takes documents,
  /// (B, T, nh); absent: not written.
  TensorView lse;
  double scale = 1;
  TensorView workspace;
  /// (B, T) int32: a document begins where it is 0, and with the sequence; absent: one document.
  TensorView positions = {};
  /// The same documents as a list, which cuDNN takes; absent: our own kernels, by positions. The same in backward.
  AttentionDocuments documents = {};
};
void attention_forward(const AttentionForwardArgs& args, StreamView stream);
/// Throws Error (usage) if head_dim is above max_device_head_dim on a device: the plan of every run asks.
[[nodiscard]] std::size_t attention_forward_workspace(const AttentionShape& shape, DType dtype,
                                                      Device device = host_device);

struct AttentionBackwardArgs {
  AttentionShape shape;
  TensorView dout;  // (B, T, nh·d)
  TensorView qkv, out, lse;
  TensorView dqkv;  // (B, T, (nh + 2·nk)·d), overwritten; must not be qkv
  double scale = 1;
  TensorView workspace;
  TensorView positions = {};  // as in forward
  AttentionDocuments documents = {};
};
void attention_backward(const AttentionBackwardArgs& args, StreamView stream);
[[nodiscard]] std::size_t attention_backward_workspace(const AttentionShape& shape, DType dtype,
                                                       Device device = host_device);

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
