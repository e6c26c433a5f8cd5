#pragma once
// The device's side of every operation of this floor. kernels/<op>.cpp checks shapes and dispatches here; contracts
// stand in kernels/<op>.hpp. Device kernels are launched on the stream's handle and never wait for it; pointers are
// device memory, scalars too. fp32, bf16 and fp16; statistics are fp32, and an fp64 tensor is refused. What backends
// differ in is said here.

#include <cstddef>
#include <cstdint>

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

[[nodiscard]] inline bool is_on_cuda(const TensorView& view) { return view.device.kind == Device::Kind::cuda; }
/// Where operations on bare pointers work: a device's streams have a handle.
[[nodiscard]] inline bool is_on_cuda(StreamView stream) { return stream.handle != nullptr; }

struct AdamWArgs;
struct AddArgs;
struct AttentionBackwardArgs;
struct AttentionForwardArgs;
struct AttentionShape;
struct BalanceGradientArgs;
struct BalanceSumsArgs;
struct BiasBackwardArgs;
struct CacheAppendArgs;
struct CachedAttentionArgs;
struct CombineArgs;
struct ClipAndSkipArgs;
struct ConvertArgs;
struct Dispatch;
struct EmbeddingBackwardArgs;
struct EmbeddingForwardArgs;
struct GeluBackwardArgs;
struct GeluForwardArgs;
struct GemmArgs;
struct GroupedGemmArgs;
struct GroupedGradientArgs;
struct SumTree16BitArgs;
struct LinearCrossEntropyArgs;
struct AccumulateNormArgs;
struct LayerNormApplyArgs;
struct LayerNormBackwardArgs;
struct LayerNormForwardArgs;
struct RmsNormApplyArgs;
struct RmsNormBackwardArgs;
struct RmsNormForwardArgs;
struct RopeArgs;
struct RopeTableArgs;
struct RouteArgs;
struct RouteBackwardArgs;
struct SumTreeArgs;
struct SwigluBackwardArgs;
struct SwigluForwardArgs;
struct CombineWeightsBackwardArgs;

namespace cuda {

void add(const AddArgs& args, StreamView stream);
void bias_backward(const BiasBackwardArgs& args, StreamView stream);
void convert(const ConvertArgs& args, StreamView stream);
void gelu_forward(const GeluForwardArgs& args, StreamView stream);
void gelu_backward(const GeluBackwardArgs& args, StreamView stream);
void swiglu_forward(const SwigluForwardArgs& args, StreamView stream);
void swiglu_backward(const SwigluBackwardArgs& args, StreamView stream);
void rope_table(const RopeTableArgs& args, StreamView stream);
void rope(const RopeArgs& args, StreamView stream);
void embedding_forward(const EmbeddingForwardArgs& args, StreamView stream);
void embedding_backward(const EmbeddingBackwardArgs& args, StreamView stream);
[[nodiscard]] std::size_t embedding_backward_workspace(std::int64_t rows);

void rms_norm_forward(const RmsNormForwardArgs& args, StreamView stream);
void rms_norm_apply(const RmsNormApplyArgs& args, StreamView stream);
void rms_norm_backward(const RmsNormBackwardArgs& args, StreamView stream);
void layer_norm_forward(const LayerNormForwardArgs& args, StreamView stream);
void layer_norm_apply(const LayerNormApplyArgs& args, StreamView stream);
void layer_norm_backward(const LayerNormBackwardArgs& args, StreamView stream);

void route(const RouteArgs& args, StreamView stream);
void route_backward(const RouteBackwardArgs& args, StreamView stream);
void make_dispatch(const TensorView& experts, const Dispatch& dispatch, StreamView stream);
void gather_rows(const TensorView& x, const Dispatch& dispatch, const TensorView& y, StreamView stream);
void combine_rows(const CombineArgs& args, StreamView stream);
void combine_weights_backward(const CombineWeightsBackwardArgs& args, StreamView stream);
/// Scales and sums are device memory. The same bits as the host's, of the same statistics.
void balance_gradient(const BalanceGradientArgs& args, StreamView stream);
void add_balance_losses(const BalanceSumsArgs& args, StreamView stream);

/// The scalars are read from device memory when the kernel runs. The same bits as the host's.
void adamw(const AdamWArgs& args, StreamView stream);
/// At most 256 parts; the list of parts is host memory. The same bits as the host's.
void sum_tree(const SumTreeArgs& args, StreamView stream);
void sum_tree_16bit(const SumTree16BitArgs& args, StreamView stream);
void add_to(const float* x, float* y, std::size_t count, StreamView stream);
void fill(float* x, std::size_t count, float value, StreamView stream);
/// Adds to the words of an ExactSum in device memory; the same digits as the host's.
void sum_of_squares(const float* x, std::size_t count, std::int64_t* words, StreamView stream);
void accumulate_norm(const AccumulateNormArgs& args, StreamView stream);
void clip_and_skip(const ClipAndSkipArgs& args, StreamView stream);
/// Elements [first, first + count) of the normal numbers of `key` (kernels/init.hpp), times std: the same bits as the
/// host's.
struct NormalArgs {
  std::uint64_t key = 0;
  std::int64_t first = 0, count = 0;
  double std = 1;
  float* out = nullptr;
};
void normals(const NormalArgs& args, StreamView stream);

/// By cuBLASLt.
void gemm(const GemmArgs& args, StreamView stream);
/// Our own: cuBLASLt wants the groups' sizes on the host.
void grouped_gemm(const GroupedGemmArgs& args, StreamView stream);
void grouped_gemm_gradient(const GroupedGradientArgs& args, StreamView stream);

void attention_forward(const AttentionForwardArgs& args, StreamView stream);
void attention_backward(const AttentionBackwardArgs& args, StreamView stream);
[[nodiscard]] std::size_t attention_forward_workspace(const AttentionShape& shape);
[[nodiscard]] std::size_t attention_backward_workspace(const AttentionShape& shape);

/// A position outside the cache is not written, and read as the cache's last.
void cache_append(const CacheAppendArgs& args, StreamView stream);
void cached_attention(const CachedAttentionArgs& args, StreamView stream);

/// Logits of a block of rows over the whole vocabulary, then one kernel that makes the loss and turns logits into
/// gradients in place. Targets are not checked: one outside the vocabulary makes the loss NaN. `sums` and `loss_scale`
/// are device memory.
void linear_cross_entropy(const LinearCrossEntropyArgs& args, StreamView stream);
[[nodiscard]] std::size_t linear_cross_entropy_workspace(std::int64_t rows, std::int64_t vocab);

}  // namespace cuda
}  // namespace tessera::kernels
