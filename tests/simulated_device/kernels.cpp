// The simulated device's kernels: the host's, run when their queue comes to them. Whatever a kernel
// is handed must lie on the device.
#include <cstring>
#include <mutex>
#include <vector>

#include "kernels/adamw.hpp"
#include "kernels/attention.hpp"
#include "kernels/attention_cache.hpp"
#include "kernels/balance.hpp"
#include "kernels/bias.hpp"
#include "kernels/convert.hpp"
#include "kernels/cuda/cudnn/attention.hpp"
#include "kernels/cuda/gemm_choice.hpp"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/sort_rows.hpp"
#include "kernels/embedding.hpp"
#include "kernels/gelu.hpp"
#include "kernels/gemm.hpp"
#include "kernels/grouped_gemm.hpp"
#include "kernels/host/init.hpp"
#include "kernels/layer_norm.hpp"
#include "kernels/linear_cross_entropy.hpp"
#include "kernels/moe.hpp"
#include "kernels/reduce.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rope.hpp"
#include "kernels/step.hpp"
#include "kernels/swiglu.hpp"
#include "tests/simulated_device/device.hpp"

namespace tessera::kernels::cuda {

namespace {

void require(const void* data, std::size_t bytes) {
  TESSERA_ASSERT(data == nullptr || bytes == 0 || simulated::on_device(data, bytes),
                 "%zu bytes of host memory for a device's kernel", bytes);
}

/// The view as the host's kernel is to have it.
void take(TensorView& view) {
  if (!view) return;
  TESSERA_ASSERT(view.device.kind == Device::Kind::cuda, "a view of the host's among a device's");
  require(view.data, 1);
  view.device = host_device;
}

template <class Args, class... Members>
Args taken(Args args, Members... members) {
  (take(args.*members), ...);
  return args;
}

}  // namespace

// NAME(args, stream): the op of that name, with these members of its arguments as views.
#define SIMULATED(name, Args, ...)                                                                       \
  void name(const Args& given, StreamView stream) {                                                      \
    using A = Args;                                                                                      \
    simulated::launch(stream, [args = taken(given, __VA_ARGS__)] { kernels::name(args, host_stream); }); \
  }

SIMULATED(add, AddArgs, &A::x, &A::y)
SIMULATED(bias_backward, BiasBackwardArgs, &A::dy, &A::dbias)
SIMULATED(convert, ConvertArgs, &A::from, &A::to)
SIMULATED(gelu_forward, GeluForwardArgs, &A::x, &A::y)
SIMULATED(gelu_backward, GeluBackwardArgs, &A::x, &A::dy, &A::dx)
SIMULATED(swiglu_forward, SwigluForwardArgs, &A::gate, &A::up, &A::y)
SIMULATED(swiglu_backward, SwigluBackwardArgs, &A::gate, &A::up, &A::dy, &A::dgate, &A::dup)
SIMULATED(rope_table, RopeTableArgs, &A::positions, &A::table)
SIMULATED(rope, RopeArgs, &A::x, &A::table, &A::positions)
SIMULATED(embedding_forward, EmbeddingForwardArgs, &A::ids, &A::tokens_table, &A::positions_table, &A::positions, &A::y)
SIMULATED(embedding_backward, EmbeddingBackwardArgs, &A::ids, &A::dy, &A::dtokens_table, &A::dpositions_table,
          &A::positions, &A::workspace)
SIMULATED(rms_norm_forward, RmsNormForwardArgs, &A::x, &A::weight, &A::y, &A::rstd)
SIMULATED(rms_norm_apply, RmsNormApplyArgs, &A::x, &A::weight, &A::rstd, &A::y)
SIMULATED(rms_norm_backward, RmsNormBackwardArgs, &A::dy, &A::x, &A::weight, &A::rstd, &A::dx, &A::dweight,
          &A::workspace)
SIMULATED(layer_norm_forward, LayerNormForwardArgs, &A::x, &A::weight, &A::bias, &A::y, &A::mean, &A::rstd)
SIMULATED(layer_norm_apply, LayerNormApplyArgs, &A::x, &A::weight, &A::bias, &A::mean, &A::rstd, &A::y)
SIMULATED(layer_norm_backward, LayerNormBackwardArgs, &A::dy, &A::x, &A::weight, &A::mean, &A::rstd, &A::dx,
          &A::dweight, &A::dbias, &A::workspace)
SIMULATED(attention_forward, AttentionForwardArgs, &A::qkv, &A::out, &A::lse, &A::workspace, &A::positions)
SIMULATED(attention_backward, AttentionBackwardArgs, &A::dout, &A::qkv, &A::out, &A::lse, &A::dqkv, &A::workspace,
          &A::positions)

#undef SIMULATED

/// What kernels/cuda/gemm.cpp has of one device.
struct Products {
  struct Call {
    TensorView result;
    std::int64_t pitch = 0;
    StreamView stream;
  };
  std::mutex mutex;
  GemmChoices choices{"a simulated device"};
  bool noting = false;
  std::map<GemmPlan, Call> noted;
};
static Products& products() {
  static Products own;
  return own;
}

void gemm(const GemmArgs& given, StreamView stream) {
  using A = GemmArgs;
  {
    Products& own = products();
    const std::lock_guard lock(own.mutex);
    const GemmPlan plan = plan_gemm(given);
    if (own.noting) own.noted.try_emplace(plan, Products::Call{given.c, plan.result_pitch, stream});
  }
  simulated::launch(
      stream, [args = taken(given, &A::a, &A::b, &A::c, &A::addend, &A::bias)] { kernels::gemm(args, host_stream); });
}

void record_gemms() {
  Products& own = products();
  const std::lock_guard lock(own.mutex);
  own.noting = true;
  own.noted.clear();
}

/// There is nothing to time. What timing may do is done: results, where the step's own will lie, are no numbers
/// afterwards.
std::size_t finish_recording_gemms(Timing timing) {
  Products& own = products();
  const std::lock_guard lock(own.mutex);
  std::size_t timed = 0;
  for (const auto& [plan, call] : own.noted) {
    if (timing == Timing::off || own.choices.find(plan)) continue;
    own.choices.keep(plan, {static_cast<std::uint64_t>(plan.m)});
    ++timed;
    simulated::launch(call.stream, [c = call.result, pitch = static_cast<std::size_t>(call.pitch)] {
      const std::size_t size = size_of(c.dtype);
      for (std::size_t row = 0; row < static_cast<std::size_t>(c.shape[0]); ++row)
        std::memset(static_cast<std::byte*>(c.data) + row * pitch * size, 0xff,
                    static_cast<std::size_t>(c.shape[1]) * size);
    });
  }
  own.noting = false;
  own.noted.clear();
  return timed;
}

std::string gemm_choices() {
  const std::lock_guard lock(products().mutex);
  return products().choices.text();
}

std::size_t apply_gemm_choices(const std::string& text, const std::string& from) {
  const std::lock_guard lock(products().mutex);
  return products().choices.take(text, from);
}

void adamw(const AdamWArgs& given, StreamView stream) {
  using A = AdamWArgs;
  require(given.scalars, sizeof *given.scalars);
  std::vector<AdamWSegment> segments(given.segments.begin(), given.segments.end());
  AdamWArgs args = taken(given, &A::param, &A::exp_avg, &A::exp_avg_sq, &A::grad, &A::copy);
  simulated::launch(stream, [args, segments]() mutable {
    args.segments = segments;
    kernels::adamw(args, host_stream);
  });
}

void linear_cross_entropy(const LinearCrossEntropyArgs& given, StreamView stream) {
  using A = LinearCrossEntropyArgs;
  require(given.sums, sizeof *given.sums);
  require(given.loss_scale, sizeof *given.loss_scale);
  simulated::launch(stream, [args = taken(given, &A::x, &A::weight, &A::targets, &A::workspace, &A::dx, &A::dweight)] {
    kernels::linear_cross_entropy(args, host_stream);
  });
}

void cache_append(const CacheAppendArgs& given, StreamView stream) {
  CacheAppendArgs args = taken(given, &CacheAppendArgs::qkv, &CacheAppendArgs::positions);
  args.cache = taken(args.cache, &AttentionCache::keys, &AttentionCache::values);
  simulated::launch(stream, [args] { kernels::cache_append(args, host_stream); });
}

void cached_attention(const CachedAttentionArgs& given, StreamView stream) {
  using A = CachedAttentionArgs;
  CachedAttentionArgs args = taken(given, &A::qkv, &A::positions, &A::out, &A::workspace);
  args.cache = taken(args.cache, &AttentionCache::keys, &AttentionCache::values);
  simulated::launch(stream, [args] { kernels::cached_attention(args, host_stream); });
}

static TokenFields taken_words(const TokenFields& words) {
  return taken(words, &TokenFields::positions, &TokenFields::targets);
}
static Dispatch taken_dispatch(const Dispatch& dispatch) {
  return taken(dispatch, &Dispatch::slots, &Dispatch::rows, &Dispatch::offsets);
}

void route(const RouteArgs& given, StreamView stream) {
  using A = RouteArgs;
  RouteArgs args = taken(given, &A::logits, &A::probs, &A::experts, &A::weights, &A::counts, &A::sums);
  args.words = taken_words(given.words);
  simulated::launch(stream, [args] { kernels::route(args, host_stream); });
}

void route_backward(const RouteBackwardArgs& given, StreamView stream) {
  using A = RouteBackwardArgs;
  RouteBackwardArgs args = taken(given, &A::dweights, &A::probs, &A::experts, &A::weights, &A::balance, &A::dlogits);
  args.words = taken_words(given.words);
  simulated::launch(stream, [args] { kernels::route_backward(args, host_stream); });
}

void make_dispatch(const TensorView& given, const Dispatch& dispatch, StreamView stream) {
  TensorView experts = given;
  take(experts);
  simulated::launch(stream,
                    [experts, to = taken_dispatch(dispatch)] { kernels::make_dispatch(experts, to, host_stream); });
}

void gather_rows(const TensorView& from, const Dispatch& dispatch, const TensorView& to, StreamView stream) {
  TensorView x = from, y = to;
  take(x);
  take(y);
  simulated::launch(stream, [x, y, by = taken_dispatch(dispatch)] { kernels::gather_rows(x, by, y, host_stream); });
}

void combine_rows(const CombineArgs& given, StreamView stream) {
  CombineArgs args = taken(given, &CombineArgs::x, &CombineArgs::weights, &CombineArgs::y);
  args.dispatch = taken_dispatch(given.dispatch);
  simulated::launch(stream, [args] { kernels::combine_rows(args, host_stream); });
}

void combine_weights_backward(const CombineWeightsBackwardArgs& given, StreamView stream) {
  using A = CombineWeightsBackwardArgs;
  CombineWeightsBackwardArgs args = taken(given, &A::a, &A::b, &A::weights, &A::dweights);
  args.dispatch = taken_dispatch(given.dispatch);
  simulated::launch(stream, [args] { kernels::combine_weights_backward(args, host_stream); });
}

/// A device's kernel knows the first matrix and the distance between them.
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

static BalanceArgs taken_balance(const BalanceArgs& given) {
  require(given.loss_scale, sizeof *given.loss_scale);
  BalanceArgs args = taken(given, &BalanceArgs::router);
  args.words = taken_words(given.words);
  return args;
}

void balance_gradient(const BalanceGradientArgs& given, StreamView stream) {
  BalanceGradientArgs args = taken(given, &BalanceGradientArgs::out);
  args.of = taken_balance(given.of);
  simulated::launch(stream, [args] { kernels::balance_gradient(args, host_stream); });
}

void add_balance_losses(const BalanceSumsArgs& given, StreamView stream) {
  require(given.gradient_scale, sizeof *given.gradient_scale);
  require(given.sums, sizeof *given.sums);
  BalanceSumsArgs args = given;
  args.of = taken_balance(given.of);
  simulated::launch(stream, [args] { kernels::add_balance_losses(args, host_stream); });
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
void add_to(const float* x, float* y, std::size_t count, StreamView stream) {
  require(x, count * sizeof(float));
  require(y, count * sizeof(float));
  simulated::launch(stream, [=] { kernels::add_to(x, y, count, host_stream); });
}
void fill(float* x, std::size_t count, float value, StreamView stream) {
  require(x, count * sizeof(float));
  simulated::launch(stream, [=] { kernels::fill(x, count, value, host_stream); });
}
void sum_of_squares(const float* x, std::size_t count, std::int64_t* words, StreamView stream) {
  require(x, count * sizeof(float));
  require(words, ExactSum::num_words * sizeof(std::int64_t));
  simulated::launch(stream,
                    [=] { kernels::sum_of_squares(x, count, *reinterpret_cast<ExactSum*>(words), host_stream); });
}
void accumulate_norm(const AccumulateNormArgs& args, StreamView stream) {
  for (const std::int64_t* words : {args.unit, args.all}) require(words, ExactSum::num_words * sizeof(std::int64_t));
  require(args.flag, sizeof(std::int64_t));
  simulated::launch(stream, [args] { kernels::accumulate_norm(args, host_stream); });
}
void clip_and_skip(const ClipAndSkipArgs& args, StreamView stream) {
  for (const std::int64_t* words : {args.norm2, args.loss}) require(words, ExactSum::num_words * sizeof(std::int64_t));
  require(args.step, sizeof *args.step);
  simulated::launch(stream, [args] { kernels::clip_and_skip(args, host_stream); });
}
void normals(const NormalArgs& args, StreamView stream) {
  require(args.out, static_cast<std::size_t>(args.count) * sizeof(float));
  simulated::launch(stream, [args] {
    for (std::int64_t i = 0; i < args.count; ++i) {
      float four[4];
      host::init().normal(args.key, static_cast<std::uint64_t>((args.first + i) / 4), 1, args.std, four);
      args.out[i] = four[(args.first + i) % 4];
    }
  });
}

std::size_t embedding_backward_workspace(std::int64_t rows) { return sort_workspace(rows); }
namespace cudnn {
void require(Device) {}
void attention_forward(const AttentionForwardArgs& args, StreamView stream) {
  if (args.shape.head_dim == 128) throw Error(ExitCode::usage, "the simulated library has no kernel for heads of 128");
  cuda::attention_forward(args, stream);
}
void attention_backward(const AttentionBackwardArgs& args, StreamView stream) {
  cuda::attention_backward(args, stream);
}
}  // namespace cudnn

std::size_t attention_forward_workspace(const AttentionShape& shape) {
  return kernels::attention_forward_workspace(shape, DType::f32);
}
std::size_t attention_backward_workspace(const AttentionShape& shape) {
  return kernels::attention_backward_workspace(shape, DType::f32);
}
std::size_t linear_cross_entropy_workspace(std::int64_t rows, std::int64_t vocab) {
  return kernels::linear_cross_entropy_workspace(rows, vocab, DType::f32);
}

}  // namespace tessera::kernels::cuda
