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

/// Whether cuDNN's kernels take calls of this shape, of rows or of documents.
[[maybe_unused]] bool is_fused([[maybe_unused]] const AttentionShape& s, [[maybe_unused]] DType dtype) {
  if constexpr (cuda_built) {
    if (on_devices == DeviceAttention::own) return false;
    return s.longest > 0 ? cuda::takes_documents(s, dtype) : cuda::plan_fused_attention(s, dtype).has_value();
  }
  return false;
}

/// Whether cuDNN's kernels take this call, forward or backward.
template <class Args>
[[maybe_unused]] bool is_fused_call(const Args& args) {
  const bool listed = args.shape.longest > 0 && !args.documents.groups.empty();
  return is_on_cuda(args.qkv) && args.lse && (args.positions ? listed : args.shape.longest == 0) &&
         is_fused(args.shape, args.qkv.dtype);
}

/// Bytes of scratch of cuDNN's kernels; 0 if they do not take the shape.
[[maybe_unused]] std::size_t fused_workspace(const AttentionShape& s, DType dtype, cuda::AttentionPass pass) {
  if (!is_fused(s, dtype)) return 0;
  if (s.longest > 0) return cuda::fused_documents_bytes(s, dtype, pass);
  const auto plan = cuda::plan_fused_attention(s, dtype);
  return pass == cuda::AttentionPass::forward ? cuda::fused_extra_bytes(0)
                                              : cuda::fused_delta_bytes(s, *plan) + 256 + plan->workspace;
}

void check_shape(const AttentionShape& s) {
  TESSERA_ASSERT(s.batch >= 0 && s.tokens >= 0 && s.kv_heads > 0 && s.head_dim > 0);
  TESSERA_ASSERT(s.heads > 0 && s.heads % s.kv_heads == 0, "%ld heads on %ld", s.heads, s.kv_heads);
}

void check_view(const TensorView& view, std::int64_t numel, DType dtype) {
  TESSERA_ASSERT(view && view.numel() == numel && view.dtype == dtype, "%s %s, %ld elements expected",
                 name_of(view.dtype), view.shape.str().c_str(), numel);
}

void check_positions(const TensorView& positions, std::int64_t rows) {
  if (positions) check_view(positions, rows, DType::i32);
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

std::size_t attention_forward_workspace(const AttentionShape& s, DType dtype, Device device) {
  if (device.kind == Device::Kind::cuda && s.head_dim > max_device_head_dim)
    throw Error(ExitCode::usage,
                strfmt("attention with heads of %ld is not supported on a GPU, whose kernels take at most %ld",
                       s.head_dim, max_device_head_dim),
                "--backend", "Use --backend cpu");
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
  const AttentionShape& s = args.shape;
  check_shape(s);
  const std::int64_t rows = s.batch * s.tokens;
  if (rows == 0) return;
  const DType dtype = args.qkv.dtype;
  check_view(args.qkv, rows * (s.heads + 2 * s.kv_heads) * s.head_dim, dtype);
  check_view(args.out, rows * s.heads * s.head_dim, dtype);
  if (args.lse) check_view(args.lse, rows * s.heads, stat_dtype(dtype));
  check_positions(args.positions, rows);
  TESSERA_ASSERT(args.workspace.nbytes() >= attention_forward_workspace(s, dtype, args.qkv.device));
  if constexpr (cuda::cudnn_built)
    if (is_fused_call(args)) {
      TESSERA_ASSERT(is_aligned_16(args.qkv) && is_aligned_16(args.out),
                     "cuDNN's attention needs memory aligned to 16 bytes");
      if (accepted_by_cudnn([&] { cuda::cudnn::attention_forward(args, stream); })) return;
    }
  TESSERA_DISPATCH(args.qkv, attention_forward, args);
}

void attention_backward(const AttentionBackwardArgs& args, StreamView stream) {
  const AttentionShape& s = args.shape;
  check_shape(s);
  const std::int64_t rows = s.batch * s.tokens, width = (s.heads + 2 * s.kv_heads) * s.head_dim;
  if (rows == 0) return;
  const DType dtype = args.qkv.dtype;
  check_view(args.qkv, rows * width, dtype);
  check_view(args.dqkv, rows * width, dtype);
  check_view(args.out, rows * s.heads * s.head_dim, dtype);
  check_view(args.dout, rows * s.heads * s.head_dim, dtype);
  check_view(args.lse, rows * s.heads, stat_dtype(dtype));
  check_positions(args.positions, rows);
  TESSERA_ASSERT(args.dqkv.data != args.qkv.data &&
                 args.workspace.nbytes() >= attention_backward_workspace(s, dtype, args.qkv.device));
  if constexpr (cuda::cudnn_built)
    if (is_fused_call(args)) {
      TESSERA_ASSERT(
          is_aligned_16(args.qkv) && is_aligned_16(args.out) && is_aligned_16(args.dout) && is_aligned_16(args.dqkv),
          "cuDNN's attention needs memory aligned to 16 bytes");
      if (accepted_by_cudnn([&] { cuda::cudnn::attention_backward(args, stream); })) return;
    }
  TESSERA_DISPATCH(args.qkv, attention_backward, args);
}

}  // namespace tessera::kernels
