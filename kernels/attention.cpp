// SPDX-License-Identifier: Apache-2.0
// Attention: checks shapes, and selects cuDNN's kernels, our own or the host's.

#include "kernels/attention.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>

#include "kernels/cuda/cudnn/attention.hpp"
#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"

namespace tessera::kernels {
namespace {

bool is_aligned_16(const TensorView& view) { return reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0; }
bool is_aligned_16(const QkvHeads& of) {
  return is_aligned_16(of.q.data) && is_aligned_16(of.k.data) && is_aligned_16(of.v.data);
}

std::atomic<DeviceAttention> on_devices{DeviceAttention::own};
std::atomic<std::int64_t> cudnn_calls{0};

struct Refusal {
  std::mutex mutex;
  std::string last;
};
Refusal& refusal() {
  static Refusal one;
  return one;
}

/// Runs a call of cuDNN and returns whether cuDNN accepted it. A refusal throws with DeviceAttention::cudnn; cuDNN has
/// then written nothing that our own kernel would not overwrite.
[[maybe_unused]] bool accepted_by_cudnn(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    if (on_devices != DeviceAttention::cudnn_or_own) throw;
    const std::lock_guard lock(refusal().mutex);
    refusal().last = error.what();
    return false;
  }
  ++cudnn_calls;
  return true;
}

/// Whether cuDNN's kernels compute calls of this shape, of rows or of documents.
[[maybe_unused]] bool is_fused(const AttentionShape& s, DType dtype) {
  return on_devices != DeviceAttention::own && attention_refusal(AttentionBackend::cudnn, s, dtype).empty();
}

/// Whether cuDNN's kernels take this call, forward or backward: of a shape that they take, q, k and v columns of one
/// matrix, with documents as a list and with `lse`.
template <class Args>
[[maybe_unused]] bool is_fused_call(const Args& args) {
  const AttentionArgs& of = args.of;
  const AttentionShape& s = of.shape;
  const std::int64_t width = (s.heads + 2 * s.kv_heads) * s.head_dim;
  const bool listed = s.longest > 0 && !of.documents.groups.empty();
  return is_on_cuda(of.qkv.q.data) && args.lse && (of.positions ? listed : s.longest == 0) && of.qkv.q.pitch == width &&
         of.qkv.k.pitch == width && of.qkv.v.pitch == width && is_fused(s, of.qkv.q.data.dtype);
}

/// Bytes of scratch of cuDNN's kernels; 0 if they do not take the shape.
[[maybe_unused]] std::size_t fused_workspace(const AttentionShape& s, DType dtype, cuda::AttentionPass pass) {
  if (!is_fused(s, dtype)) return 0;
  if (s.longest > 0) return cuda::fused_documents_bytes(s, dtype, pass);
  const auto plan = cuda::plan_fused_attention(s, dtype);
  return pass == cuda::AttentionPass::forward ? cuda::fused_extra_bytes(0)
                                              : cuda::fused_delta_bytes(s, *plan) + 256 + plan->workspace;
}

void check_view(const TensorView& view, std::int64_t numel, DType dtype) {
  TESSERA_ASSERT(view && view.numel() == numel && view.dtype == dtype, "%s %s, %ld elements expected",
                 name_of(view.dtype), view.shape.str().c_str(), numel);
}

/// `rows` tokens of `width` elements.
void check_heads(const HeadRows& heads, std::int64_t rows, std::int64_t width, DType dtype) {
  TESSERA_ASSERT(heads.data && heads.data.dtype == dtype && heads.pitch >= width &&
                     heads.data.numel() >= (rows - 1) * heads.pitch + width,
                 "%s %s, %ld rows of %ld elements, %ld apart, expected", name_of(heads.data.dtype),
                 heads.data.shape.str().c_str(), rows, width, heads.pitch);
}

void check_qkv(const AttentionShape& s, const QkvHeads& of, DType dtype) {
  check_heads(of.q, s.batch * s.tokens, s.heads * s.head_dim, dtype);
  check_heads(of.k, s.batch * s.num_keys(), s.kv_heads * s.head_dim, dtype);
  check_heads(of.v, s.batch * s.num_keys(), s.kv_heads * s.head_dim, dtype);
}

void check_args(const AttentionArgs& of, DType dtype) {
  const AttentionShape& s = of.shape;
  check_qkv(s, of.qkv, dtype);
  if (s.sinks) check_view(of.sinks, s.heads, dtype);
  if (of.positions) check_view(of.positions, s.batch * s.num_keys(), DType::i32);
  const AttentionBackend backend = is_on_cuda(of.qkv.q.data) ? AttentionBackend::own : AttentionBackend::host;
  if (const std::string why = attention_refusal(backend, s, dtype); !why.empty()) throw Error(ExitCode::usage, why);
}

void check_shape(const AttentionShape& s) {
  TESSERA_ASSERT(s.batch >= 0 && s.tokens >= 0 && s.kv_heads > 0 && s.head_dim > 0);
  TESSERA_ASSERT(s.heads > 0 && s.heads % s.kv_heads == 0, "%ld heads on %ld", s.heads, s.kv_heads);
  TESSERA_ASSERT(s.query_offset >= 0 && s.query_offset + s.tokens <= s.num_keys(),
                 "%ld queries from %ld on of %ld keys", s.tokens, s.query_offset, s.num_keys());
  TESSERA_ASSERT(s.window >= 0 && s.soft_cap >= 0, "a window of %ld, a soft cap of %g", s.window, s.soft_cap);
}

}  // namespace

void set_device_attention(DeviceAttention kernels) { on_devices = kernels; }
DeviceAttention device_attention() { return on_devices; }
std::int64_t cudnn_attention_calls() { return cudnn_calls; }
std::string cudnn_attention_refusal() {
  const std::lock_guard lock(refusal().mutex);
  return refusal().last;
}

bool wants_document_list(DType dtype, Device device) {
  return device.kind == Device::Kind::cuda && on_devices != DeviceAttention::own && size_of(dtype) == 2;
}

void require_cudnn_attention([[maybe_unused]] Device device) {
  if constexpr (cuda::cudnn_built) return cuda::cudnn::require(device);
  throw Error(ExitCode::usage, "this program was built without cuDNN", "--attention cudnn",
              "Build it with cudnn_graph.h of 9.8 or newer, or use --attention own");
}

QkvHeads fused_qkv(const AttentionShape& s, const TensorView& qkv) {
  const std::int64_t width = (s.heads + 2 * s.kv_heads) * s.head_dim;
  const auto from = [&](std::int64_t head) {
    const std::int64_t at = std::min(head * s.head_dim, qkv.numel());
    return HeadRows{{static_cast<std::byte*>(qkv.data) + static_cast<std::size_t>(at) * size_of(qkv.dtype), qkv.dtype,
                     Shape{qkv.numel() - at}, qkv.device},
                    width};
  };
  return {from(0), from(s.heads), from(s.heads + s.kv_heads)};
}

std::string attention_refusal(AttentionBackend backend, const AttentionShape& s, DType dtype) {
  switch (backend) {
    case AttentionBackend::host: return "";
    case AttentionBackend::own:
      if (!cuda_built) return "this program was built without CUDA";
      if (dtype == DType::f64) return "attention of fp64 is not supported on a GPU";
      if (s.head_dim <= max_device_head_dim) return "";
      return strfmt("attention with heads of %ld is not supported on a GPU, whose kernels take at most %ld", s.head_dim,
                    max_device_head_dim);
    case AttentionBackend::cudnn:
      if (!cuda::cudnn_built) return "this program was built without cuDNN";
      if (s.query_offset != 0 || s.num_keys() != s.tokens)
        return "cuDNN's attention takes no queries of a part of a row";
      if (s.soft_cap > 0) return "cuDNN's attention takes no soft cap";
      if (s.sinks) return "cuDNN's attention takes no sinks";
      if (s.longest > 0 ? cuda::takes_documents(s, dtype) : cuda::plan_fused_attention(s, dtype).has_value()) return "";
      return strfmt(
          "cuDNN's attention takes bf16 and fp16, heads of 64 or 128, and rows whose scratch is within %zu MiB",
          cuda::fused_most_bytes >> 20);
  }
  return "";
}

std::size_t attention_forward_workspace(const AttentionShape& s, DType dtype, Device device) {
  if (device.kind == Device::Kind::cuda)
    if (const std::string why = attention_refusal(AttentionBackend::own, s, dtype); !why.empty())
      throw Error(ExitCode::usage, why, "--backend", "Use --backend cpu");
  if constexpr (cuda_built)
    if (device.kind == Device::Kind::cuda)
      return std::max(cuda::attention_forward_workspace(s), fused_workspace(s, dtype, cuda::AttentionPass::forward));
  return host::attention_forward_workspace(s, dtype);
}

std::size_t attention_backward_workspace(const AttentionShape& s, DType dtype, [[maybe_unused]] Device device) {
  if constexpr (cuda_built)
    if (device.kind == Device::Kind::cuda)
      return std::max(cuda::attention_backward_workspace(s), fused_workspace(s, dtype, cuda::AttentionPass::backward));
  return host::attention_backward_workspace(s, dtype);
}

void attention_forward(const AttentionForwardArgs& args, StreamView stream) {
  const AttentionShape& s = args.of.shape;
  check_shape(s);
  const std::int64_t rows = s.batch * s.tokens;
  if (rows == 0) return;
  const TensorView& q = args.of.qkv.q.data;
  check_args(args.of, q.dtype);
  check_view(args.out, rows * s.heads * s.head_dim, q.dtype);
  if (args.lse) check_view(args.lse, rows * s.heads, stat_dtype(q.dtype));
  TESSERA_ASSERT(args.workspace.nbytes() >= attention_forward_workspace(s, q.dtype, q.device));
  if constexpr (cuda::cudnn_built)
    if (is_fused_call(args)) {
      TESSERA_ASSERT(is_aligned_16(args.of.qkv) && is_aligned_16(args.out),
                     "cuDNN's attention needs memory aligned to 16 bytes");
      if (accepted_by_cudnn([&] { cuda::cudnn::attention_forward(args, stream); })) return;
    }
  TESSERA_DISPATCH(q, attention_forward, args);
}

void attention_backward(const AttentionBackwardArgs& args, StreamView stream) {
  const AttentionShape& s = args.of.shape;
  check_shape(s);
  const std::int64_t rows = s.batch * s.tokens;
  if (rows == 0) return;
  const TensorView& q = args.of.qkv.q.data;
  check_args(args.of, q.dtype);
  check_qkv(s, args.dqkv, q.dtype);
  check_view(args.out, rows * s.heads * s.head_dim, q.dtype);
  check_view(args.dout, rows * s.heads * s.head_dim, q.dtype);
  check_view(args.lse, rows * s.heads, stat_dtype(q.dtype));
  if (args.dsinks) {
    TESSERA_ASSERT(s.sinks, "a gradient of sinks without sinks");
    check_view(args.dsinks, s.heads, args.dsinks.dtype == DType::f32 ? DType::f32 : q.dtype);
  }
  TESSERA_ASSERT(args.dqkv.q.data.data != q.data &&
                 args.workspace.nbytes() >= attention_backward_workspace(s, q.dtype, q.device));
  if constexpr (cuda::cudnn_built)
    if (is_fused_call(args)) {
      const QkvHeads &of = args.of.qkv, &to = args.dqkv;
      const bool same = to.q.pitch == of.q.pitch && to.k.pitch == of.k.pitch && to.v.pitch == of.v.pitch;
      // Our own kernels could not read the log-sum-exp that cuDNN has written of documents.
      TESSERA_ASSERT(same || s.longest == 0, "gradients of documents by cuDNN have the pitches of q, k and v");
      TESSERA_ASSERT(
          !same || (is_aligned_16(of) && is_aligned_16(args.out) && is_aligned_16(args.dout) && is_aligned_16(to)),
          "cuDNN's attention needs memory aligned to 16 bytes");
      if (same && accepted_by_cudnn([&] { cuda::cudnn::attention_backward(args, stream); })) return;
    }
  TESSERA_DISPATCH(q, attention_backward, args);
}

}  // namespace tessera::kernels
