#pragma once
// Causal self-attention without a T×T buffer: tiles, online softmax (Milakov, Gimelshein 2018; FlashAttention-2, Dao
// 2023, Alg. 1-2). Grouped-query: query head i reads kv head i / (heads / kv_heads). Scores are scaled by `scale`
// (head_dim^-0.5). A sequence may hold several documents, told by positions: a token sees its own document only, and a
// document's bits are those it has when it is a sequence of its own. Nothing is computed outside the documents: the
// cost is the sum over them, not T².

#include <cstdint>
#include <string>

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

struct AttentionShape {
  std::int64_t batch = 0, tokens = 0;                  // B, T
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;  // nh, nk, d
};

struct AttentionForwardArgs {
  AttentionShape shape;
  TensorView qkv;  // (B, T, (nh + 2·nk)·d): q heads, then k heads, then v heads, per token
  TensorView out;  // (B, T, nh·d)
  TensorView lse;  // (B, nh, T) of stat_dtype: log of the softmax denominator, for backward; absent: not wanted
  double scale = 1;
  TensorView workspace;
  TensorView positions =
      {};  // (B, T) int32: a document begins where it is 0 (and with the sequence); absent: one document
};
void attention_forward(const AttentionForwardArgs& args, StreamView stream);
[[nodiscard]] std::size_t attention_forward_workspace(const AttentionShape& shape, DType dtype,
                                                      Device device = host_device);

struct AttentionBackwardArgs {
  AttentionShape shape;
  TensorView dout;  // (B, T, nh·d)
  TensorView qkv, out, lse;
  TensorView dqkv;  // (B, T, (nh + 2·nk)·d), overwritten; must not be qkv
  double scale = 1;
  TensorView workspace;
  TensorView positions = {};  // as forward's
};
void attention_backward(const AttentionBackwardArgs& args, StreamView stream);
[[nodiscard]] std::size_t attention_backward_workspace(const AttentionShape& shape, DType dtype,
                                                       Device device = host_device);

/// Who computes attention on devices: our own kernels; or cuDNN's, where they take a call: bf16 or fp16, heads of 64 or
/// 128, one document a sequence, backward's scratch within a bound, and in forward `lse` wanted. The other calls are
/// our own kernels'. cudnn_or_own: as cudnn, but what the library then refuses is our own's too, and counted, where
/// else it throws. Workspaces are those of own or, larger, of the other two: set before a run is planned; a smaller one
/// may follow.
enum class DeviceAttention : unsigned char { own, cudnn, cudnn_or_own };
void set_device_attention(DeviceAttention who);
[[nodiscard]] DeviceAttention device_attention();
/// Throws Error (usage), saying what is missing, where cuDNN cannot compute on the device: not built in, no library or
/// an old one, a device that is no sm_90.
void require_cudnn_attention(Device device);
/// Calls that cuDNN's kernels have taken in this process; and, of cudnn_or_own ones, why the last was refused ("": none
/// was).
[[nodiscard]] std::int64_t cudnn_attention_calls();
[[nodiscard]] std::string cudnn_attention_refusal();

}  // namespace tessera::kernels
