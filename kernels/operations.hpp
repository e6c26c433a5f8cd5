// SPDX-License-Identifier: Apache-2.0
#pragma once
// The list of operations: the declarations of host/ops.hpp and cuda/ops.hpp and the operations of
// tests/simulated_device are made from it, so that a new operation is listed once. kernels/<op>.hpp has the contracts.

#include <cstddef>
#include <cstdint>

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

/// X(name, Args, members of Args that lie in the operation's memory: views, structs of views, pointers to scalars). A
/// is Args.
#define TESSERA_OPERATIONS(X)                                                                                        \
  X(add, AddArgs, &A::x, &A::y)                                                                                      \
  X(bias_backward, BiasBackwardArgs, &A::dy, &A::dbias)                                                              \
  X(convert, ConvertArgs, &A::from, &A::to)                                                                          \
  X(dequantize, DequantizeArgs, &A::bytes, &A::out)                                                                  \
  X(dropout, DropoutArgs, &A::x, &A::y)                                                                              \
  X(scale, ScaleArgs, &A::x)                                                                                         \
  X(soft_cap, SoftCapArgs, &A::x)                                                                                    \
  X(gelu_forward, GeluForwardArgs, &A::x, &A::y)                                                                     \
  X(gelu_backward, GeluBackwardArgs, &A::x, &A::dy, &A::dx)                                                          \
  X(swiglu_forward, SwigluForwardArgs, &A::gate, &A::up, &A::y)                                                      \
  X(swiglu_backward, SwigluBackwardArgs, &A::gate, &A::up, &A::dy, &A::dgate, &A::dup)                               \
  X(rope_table, RopeTableArgs, &A::positions, &A::table)                                                             \
  X(rope, RopeArgs, &A::x, &A::table, &A::positions)                                                                 \
  X(embedding_forward, EmbeddingForwardArgs, &A::ids, &A::tokens_table, &A::positions_table, &A::positions, &A::y)   \
  X(embedding_backward, EmbeddingBackwardArgs, &A::ids, &A::dy, &A::dtokens_table, &A::dpositions_table,             \
    &A::positions, &A::workspace)                                                                                    \
  X(rms_norm_forward, RmsNormForwardArgs, &A::x, &A::weight, &A::y, &A::rstd)                                        \
  X(rms_norm_apply, RmsNormApplyArgs, &A::x, &A::weight, &A::rstd, &A::y)                                            \
  X(rms_norm_backward, RmsNormBackwardArgs, &A::dy, &A::x, &A::weight, &A::rstd, &A::dx, &A::dweight, &A::workspace) \
  X(layer_norm_forward, LayerNormForwardArgs, &A::x, &A::weight, &A::bias, &A::y, &A::mean, &A::rstd)                \
  X(layer_norm_apply, LayerNormApplyArgs, &A::x, &A::weight, &A::bias, &A::mean, &A::rstd, &A::y)                    \
  X(layer_norm_backward, LayerNormBackwardArgs, &A::dy, &A::x, &A::weight, &A::mean, &A::rstd, &A::dx, &A::dweight,  \
    &A::dbias, &A::workspace)                                                                                        \
  X(attention_forward, AttentionForwardArgs, &A::of, &A::out, &A::lse, &A::workspace)                                \
  X(attention_backward, AttentionBackwardArgs, &A::of, &A::dout, &A::out, &A::lse, &A::dqkv, &A::dsinks,             \
    &A::workspace)                                                                                                   \
  X(cache_append, CacheAppendArgs, &A::k, &A::v, &A::positions, &A::cache)                                           \
  X(cached_attention, CachedAttentionArgs, &A::of, &A::cache, &A::out, &A::lse, &A::workspace)                       \
  X(linear_cross_entropy, LinearCrossEntropyArgs, &A::x, &A::weight, &A::targets, &A::sums, &A::workspace,           \
    &A::loss_scale, &A::dx, &A::dweight, &A::log_probs, &A::part, &A::log_sum_squares)                               \
  X(merge_token_statistics, MergeTokenStatisticsArgs, &A::parts, &A::targets, &A::weights, &A::sums, &A::loss_scale, \
    &A::merged)                                                                                                      \
  X(preference_loss, PreferenceLossArgs, &A::rows, &A::reference_sums, &A::matched, &A::nll_weights, &A::weights,    \
    &A::sums, &A::metrics)                                                                                           \
  X(match_sorted, MatchSortedArgs, &A::rows, &A::reference_sums, &A::scratch, &A::matched)                           \
  X(labelled_loss, LabelledLossArgs, &A::rows, &A::reference_sums, &A::labels, &A::kl, &A::weights, &A::sums,        \
    &A::metrics)                                                                                                     \
  X(sum_sequences, SumSequencesArgs, &A::rows, &A::sums)                                                             \
  X(route, RouteArgs, &A::logits, &A::probs, &A::experts, &A::weights, &A::counts, &A::sums, &A::fields)             \
  X(route_backward, RouteBackwardArgs, &A::dweights, &A::probs, &A::experts, &A::weights, &A::balance, &A::fields,   \
    &A::dlogits)                                                                                                     \
  X(combine_rows, CombineArgs, &A::x, &A::weights, &A::dispatch, &A::y)                                              \
  X(combine_weights_backward, CombineWeightsBackwardArgs, &A::a, &A::b, &A::weights, &A::dispatch, &A::dweights)     \
  X(count_tokens, CountTokensArgs, &A::fields, &A::out)                                                              \
  X(sum_statistics, SumStatisticsArgs, &A::parts, &A::sum)                                                           \
  X(balance_gradient, BalanceGradientArgs, &A::of, &A::out)                                                          \
  X(add_balance_losses, BalanceSumsArgs, &A::of, &A::gradient_scale, &A::sums)                                       \
  X(accumulate_norm, AccumulateNormArgs, &A::unit, &A::all, &A::flag)                                                \
  X(carry_sums, CarrySumsArgs, &A::counters)                                                                         \
  X(clip_and_skip, ClipAndSkipArgs, &A::norm2, &A::loss, &A::flags, &A::step)

/// X(name, parameters): arguments that are lists in host memory, several, or bare pointers.
#define TESSERA_OTHER_OPERATIONS(X)                                                  \
  X(adamw, const AdamWArgs& args)                                                    \
  X(adamw_8bit, const AdamW8BitArgs& args)                                           \
  X(sgd, const SgdArgs& args)                                                        \
  X(sum_tree, const SumTreeArgs& args)                                               \
  X(sum_tree_16bit, const SumTree16BitArgs& args)                                    \
  X(gemm, const GemmArgs& args)                                                      \
  X(grouped_gemm, const GroupedGemmArgs& args)                                       \
  X(grouped_gemm_gradient, const GroupedGradientArgs& args)                          \
  X(make_dispatch, const TensorView& experts, const Dispatch& dispatch)              \
  X(gather_rows, const TensorView& x, const Dispatch& dispatch, const TensorView& y) \
  X(normals, const NormalArgs& args)                                                 \
  X(add_to, const float* x, float* y, std::size_t count)                             \
  X(add_16bit_to, const void* x, DType dtype, float* y, std::size_t count)           \
  X(fill, float* x, std::size_t count, float value)

namespace tessera::kernels {

#define TESSERA_DECLARE_ARGS(name, Args, ...) struct Args;
TESSERA_OPERATIONS(TESSERA_DECLARE_ARGS)
#undef TESSERA_DECLARE_ARGS

[[nodiscard]] inline bool is_on_cuda(const TensorView& view) { return view.device.kind == Device::Kind::cuda; }
/// Where operations on bare pointers run: a device's streams have a handle.
[[nodiscard]] inline bool is_on_cuda(StreamView stream) { return stream.handle != nullptr; }

/// The end of kernels/<op>.cpp's functions: the device's side if `where` is on a device, else the host's.
#define TESSERA_DISPATCH(where, name, ...)                         \
  if constexpr (cuda_built)                                        \
    if (is_on_cuda(where)) return cuda::name(__VA_ARGS__, stream); \
  host::name(__VA_ARGS__)

struct AdamWArgs;
struct AdamW8BitArgs;
struct SgdArgs;
struct AttentionShape;
struct SumTreeArgs;
struct SumTree16BitArgs;
struct SumTreeInt8Args;
struct GemmArgs;
struct GroupedGemmArgs;
struct GroupedGradientArgs;
struct Dispatch;

/// Elements [first, first + count) of the normal numbers of `key` (kernels/init.hpp), times std.
struct NormalArgs {
  std::uint64_t key = 0;
  std::int64_t first = 0, count = 0;
  double std = 1;
  float* out = nullptr;
};

}  // namespace tessera::kernels
