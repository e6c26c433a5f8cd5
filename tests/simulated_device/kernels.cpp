// SPDX-License-Identifier: Apache-2.0
// The simulated device's kernels: the host's, run when their queue reaches them. Their arguments must lie on the
// device.
#include <vector>

#include "kernels/adamw_8bit.hpp"
#include "kernels/argmax.hpp"
#include "kernels/attention.hpp"
#include "kernels/attention_cache.hpp"
#include "kernels/balance.hpp"
#include "kernels/bias.hpp"
#include "kernels/clamped_swiglu.hpp"
#include "kernels/convert.hpp"
#include "kernels/cuda/argmax.hpp"
#include "kernels/cuda/clamped_swiglu.hpp"
#include "kernels/cuda/gemm_few_rows.hpp"
#include "kernels/cuda/group_bias.hpp"
#include "kernels/cuda/head_parts.hpp"
#include "kernels/cuda/int8_blocks.hpp"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/reward_loss.hpp"
#include "kernels/cuda/rope_at_positions.hpp"
#include "kernels/cuda/sample.hpp"
#include "kernels/cuda/sort_rows.hpp"
#include "kernels/dequantize.hpp"
#include "kernels/dropout.hpp"
#include "kernels/embedding.hpp"
#include "kernels/gelu.hpp"
#include "kernels/gemm.hpp"
#include "kernels/group_bias.hpp"
#include "kernels/grouped_gemm.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/int8_blocks.hpp"
#include "kernels/layer_norm.hpp"
#include "kernels/linear_cross_entropy.hpp"
#include "kernels/moe.hpp"
#include "kernels/preference_loss.hpp"
#include "kernels/reduce.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rope.hpp"
#include "kernels/sample.hpp"
#include "kernels/scale.hpp"
#include "kernels/sgd.hpp"
#include "kernels/step.hpp"
#include "kernels/swiglu.hpp"
#include "tests/simulated_device/arguments.hpp"

namespace tessera::kernels::cuda {

#define SIMULATED(name, Args, ...)                                                                       \
  void name(const Args& given, StreamView stream) {                                                      \
    using A = Args;                                                                                      \
    simulated::launch(stream, [args = taken(given, __VA_ARGS__)] { kernels::name(args, host_stream); }); \
  }
TESSERA_OPERATIONS(SIMULATED)
#undef SIMULATED

void rope_at_positions(const RopeTableArgs& table, const RopeArgs& given, StreamView stream) {
  simulated::launch(stream, [of = taken(table, &RopeTableArgs::positions, &RopeTableArgs::table),
                             args = taken(given, &RopeArgs::x, &RopeArgs::table)] {
    kernels::rope_at_positions(of, args, host_stream);
  });
}

void argmax(const ArgmaxArgs& given, StreamView stream) {
  simulated::launch(stream,
                    [args = taken(given, &ArgmaxArgs::x, &ArgmaxArgs::out)] { kernels::argmax(args, host_stream); });
}

void split_heads(const HeadPartsArgs& given, StreamView stream) {
  using A = HeadPartsArgs;
  simulated::launch(stream, [args = taken(given, &A::rows, &A::parts)] { kernels::split_heads(args, host_stream); });
}

void merge_heads(const HeadPartsArgs& given, StreamView stream) {
  using A = HeadPartsArgs;
  simulated::launch(stream, [args = taken(given, &A::rows, &A::parts)] { kernels::merge_heads(args, host_stream); });
}

void score_sequences(const ScoreArgs& given, StreamView stream) {
  using A = ScoreArgs;
  simulated::launch(stream, [args = taken(given, &A::x, &A::weight, &A::ids, &A::positions, &A::last, &A::scores,
                                          &A::ends)] { kernels::score_sequences(args, host_stream); });
}

void reward_loss(const RewardLossArgs& given, StreamView stream) {
  using A = RewardLossArgs;
  simulated::launch(stream, [args = taken(given, &A::scores, &A::margins, &A::slopes, &A::sums, &A::metrics)] {
    kernels::reward_loss(args, host_stream);
  });
}

void score_backward(const ScoreBackwardArgs& given, StreamView stream) {
  using A = ScoreBackwardArgs;
  simulated::launch(stream, [args = taken(given, &A::x, &A::weight, &A::last, &A::slopes, &A::loss_scale, &A::dx,
                                          &A::dweight)] { kernels::score_backward(args, host_stream); });
}

void clamped_swiglu_forward(const ClampedSwigluForwardArgs& given, StreamView stream) {
  using A = ClampedSwigluForwardArgs;
  simulated::launch(stream,
                    [args = taken(given, &A::gate_up, &A::y)] { kernels::clamped_swiglu_forward(args, host_stream); });
}

void clamped_swiglu_backward(const ClampedSwigluBackwardArgs& given, StreamView stream) {
  using A = ClampedSwigluBackwardArgs;
  simulated::launch(stream, [args = taken(given, &A::gate_up, &A::dy, &A::dgate_up)] {
    kernels::clamped_swiglu_backward(args, host_stream);
  });
}

void add_group_bias(const AddGroupBiasArgs& given, StreamView stream) {
  using A = AddGroupBiasArgs;
  simulated::launch(
      stream, [args = taken(given, &A::offsets, &A::bias, &A::y)] { kernels::add_group_bias(args, host_stream); });
}

void group_bias_gradient(const GroupBiasGradientArgs& given, StreamView stream) {
  using A = GroupBiasGradientArgs;
  simulated::launch(stream, [args = taken(given, &A::dispatch, &A::dy, &A::weights, &A::dbias)] {
    kernels::group_bias_gradient(args, host_stream);
  });
}

void add_group_bias_weights(const GroupBiasWeightsArgs& given, StreamView stream) {
  using A = GroupBiasWeightsArgs;
  simulated::launch(stream, [args = taken(given, &A::dispatch, &A::bias, &A::dy, &A::dweights)] {
    kernels::add_group_bias_weights(args, host_stream);
  });
}

void sample(const SampleArgs& given, StreamView stream) {
  using A = SampleArgs;
  simulated::launch(stream, [args = taken(given, &A::x, &A::draws, &A::out)] { kernels::sample(args, host_stream); });
}

void gemm_few_rows(const GemmArgs& given, StreamView stream) {
  using A = GemmArgs;
  simulated::launch(
      stream, [args = taken(given, &A::a, &A::b, &A::c, &A::addend, &A::bias)] { kernels::gemm(args, host_stream); });
}

/// A device's kernel has the segments as an argument: the caller's list may change after the call.
template <class Args>
static void launch_update(StreamView stream, Args args, void (*update)(const Args&, StreamView)) {
  const std::vector<UpdateSegment> segments(args.update.segments.begin(), args.update.segments.end());
  simulated::launch(stream, [args, segments, update]() mutable {
    args.update.segments = segments;
    update(args, host_stream);
  });
}

void adamw(const AdamWArgs& given, StreamView stream) {
  using A = AdamWArgs;
  launch_update(stream, taken(given, &A::update, &A::exp_avg, &A::exp_avg_sq, &A::scalars), kernels::adamw);
}

void adamw_8bit(const AdamW8BitArgs& given, StreamView stream) {
  using A = AdamW8BitArgs;
  launch_update(stream, taken(given, &A::update, &A::exp_avg, &A::exp_avg_sq, &A::scalars), kernels::adamw_8bit);
}

void sgd(const SgdArgs& given, StreamView stream) {
  using A = SgdArgs;
  launch_update(stream, taken(given, &A::update, &A::momentum_buffer, &A::scalars), kernels::sgd);
}

void make_dispatch(const TensorView& experts, const Dispatch& dispatch, StreamView stream) {
  simulated::launch(stream,
                    [from = taken(experts), to = taken(dispatch)] { kernels::make_dispatch(from, to, host_stream); });
}

void gather_rows(const TensorView& x, const Dispatch& dispatch, const TensorView& y, StreamView stream) {
  simulated::launch(stream, [from = taken(x), by = taken(dispatch), to = taken(y)] {
    kernels::gather_rows(from, by, to, host_stream);
  });
}

/// A device's kernel gets the first matrix and the distance to the next.
static std::vector<TensorView> taken_matrices(const GroupMatrices& given, std::int64_t groups) {
  const std::int64_t distance = group_stride(given, groups);
  TensorView first = given[0];
  take(first);
  std::vector<TensorView> matrices;
  for (std::int64_t e = 0; e < groups; ++e) {
    matrices.push_back(first);
    matrices.back().data =
        static_cast<std::byte*>(first.data) + static_cast<std::size_t>(e * distance) * size_of(first.dtype);
  }
  return matrices;
}

void grouped_gemm(const GroupedGemmArgs& given, StreamView stream) {
  using A = GroupedGemmArgs;
  const auto matrices = taken_matrices(given.b, given.offsets.numel() - 1);
  simulated::launch(stream, [args = taken(given, &A::offsets, &A::a, &A::c), matrices]() mutable {
    args.b = {matrices.data(), 1};
    kernels::grouped_gemm(args, host_stream);
  });
}

void grouped_gemm_gradient(const GroupedGradientArgs& given, StreamView stream) {
  using A = GroupedGradientArgs;
  const auto matrices = taken_matrices(given.c, given.offsets.numel() - 1);
  simulated::launch(stream, [args = taken(given, &A::offsets, &A::a, &A::b), matrices]() mutable {
    args.c = {matrices.data(), 1};
    kernels::grouped_gemm_gradient(args, host_stream);
  });
}

void sum_tree(const SumTreeArgs& args, StreamView stream) {
  std::vector<const float*> parts(args.parts.begin(), args.parts.end());
  simulated::launch(stream, [parts, out = args.out, count = args.count] {
    kernels::sum_tree({.parts = parts, .out = out, .count = count}, host_stream);
  });
}
void sum_tree_16bit(const SumTree16BitArgs& args, StreamView stream) {
  std::vector<const void*> parts(args.parts.begin(), args.parts.end());
  simulated::launch(stream, [parts, args] {
    kernels::sum_tree_16bit({.parts = parts, .dtype = args.dtype, .out = args.out, .count = args.count}, host_stream);
  });
}
void encode_int8(const EncodeInt8Args& args, StreamView stream) {
  const std::size_t numbers = args.chunks * args.count;
  require(args.x, numbers * size_of(args.dtype));
  require(args.to, args.chunks * int8_bytes(args.count));
  require(args.residual, numbers * sizeof(float));
  simulated::launch(stream, [args] { kernels::encode_int8(args, host_stream); });
}
void decode_int8(const DecodeInt8Args& args, StreamView stream) {
  require(args.from, args.chunks * int8_bytes(args.count));
  require(args.to, args.chunks * args.count * size_of(args.dtype));
  simulated::launch(stream, [args] { kernels::decode_int8(args, host_stream); });
}
void sum_tree_int8(const SumTreeInt8Args& args, StreamView stream) {
  require(args.parts, args.number * int8_bytes(args.count));
  require(args.out, args.count * sizeof(float));
  simulated::launch(stream, [args] { kernels::sum_tree_int8(args, host_stream); });
}
void add_to(const float* x, float* y, std::size_t count, StreamView stream) {
  require(x, count * sizeof(float));
  require(y, count * sizeof(float));
  simulated::launch(stream, [=] { kernels::add_to(x, y, count, host_stream); });
}
void add_16bit_to(const void* x, DType dtype, float* y, std::size_t count, StreamView stream) {
  require(x, count * size_of(dtype));
  require(y, count * sizeof(float));
  simulated::launch(stream, [=] { kernels::add_16bit_to(x, dtype, y, count, host_stream); });
}
void fill(float* x, std::size_t count, float value, StreamView stream) {
  require(x, count * sizeof(float));
  simulated::launch(stream, [=] { kernels::fill(x, count, value, host_stream); });
}
void sum_of_squares(const float* x, std::size_t count, std::int64_t* counters, StreamView stream) {
  require(x, count * sizeof(float));
  require(counters, ExactSum::num_counters * sizeof(std::int64_t));
  simulated::launch(stream,
                    [=] { kernels::sum_of_squares(x, count, *reinterpret_cast<ExactSum*>(counters), host_stream); });
}
void normals(const NormalArgs& args, StreamView stream) {
  require(args.out, static_cast<std::size_t>(args.count) * sizeof(float));
  simulated::launch(stream, [args] { host::normals(args); });
}

std::size_t embedding_backward_workspace(std::int64_t rows) { return sort_workspace(rows); }
std::size_t attention_forward_workspace(const AttentionShape& shape) {
  return kernels::attention_forward_workspace(shape, DType::f32);
}
std::size_t attention_backward_workspace(const AttentionShape& shape) {
  return kernels::attention_backward_workspace(shape, DType::f32);
}
std::size_t cached_attention_workspace(const AttentionShape& shape) {
  return kernels::cached_attention_workspace(shape, DType::f32);
}
std::size_t linear_cross_entropy_workspace(std::int64_t rows, std::int64_t vocab, DType dtype) {
  return kernels::linear_cross_entropy_workspace(rows, vocab, dtype);
}

}  // namespace tessera::kernels::cuda
