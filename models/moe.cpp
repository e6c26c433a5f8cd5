// SPDX-License-Identifier: Apache-2.0
// MoeMlp: saves the router's choice, gate and up, and their product with BatchShape::saves_outputs; backward recomputes
// the rest, and writes the gradients of gate and up over gate and up.
#include "models/moe.hpp"

#include <algorithm>

#include "kernels/balance.hpp"
#include "kernels/bias.hpp"
#include "kernels/group_bias.hpp"
#include "kernels/swiglu.hpp"
#include "models/tensor_split.hpp"

namespace tessera::models {

MoeMlp::MoeMlp(const MoeMlpSpec& spec, ParamList& params)
    : channels_(spec.router.in),
      hidden_(spec.fused ? spec.fused->down.shape[1] : spec.experts.front().up.out),
      top_k_(spec.top_k),
      weigh_(spec.weigh),
      weighs_inputs_(spec.weighs_inputs),
      layer_(spec.layer),
      balance_(spec.balance),
      router_(spec.router, params),
      fused_(spec.fused.has_value()) {
  for (const MoeMlpSpec::Expert& expert : spec.experts) {
    gate_up_.add({expert.gate, expert.up}, params);
    down_.add({expert.down}, params);
  }
  std::int64_t count = static_cast<std::int64_t>(spec.experts.size());
  if (spec.fused) {
    const FusedExpertsSpec& of = *spec.fused;
    count = of.gate_up.shape[0];
    if (of.clamped) limits_ = of.clamped->limits, router_bias_ = params.add(of.clamped->router_bias);
    gate_up_.add_fused(of.gate_up, params);
    if (of.clamped) gate_up_bias_ = params.add(of.clamped->gate_up_bias);
    down_.add_fused(of.down, params);
    if (of.clamped) down_bias_ = params.add(of.clamped->down_bias);
  }
  TESSERA_ASSERT(router_.out() == count && top_k_ > 0 && top_k_ <= count);
  TESSERA_ASSERT(!weighs_inputs_ || (fused_ && !limits_));
}

void MoeMlp::adapt(AdapterMaker& adapters) {
  if (fused_) return;  // PEFT adapts tensors, and routers that are no Linears, by target_parameters alone
  router_.adapt(adapters, AdapterMaker::Kind::router);
  for (GroupedLinear* linear : {&gate_up_, &down_}) linear->adapt(adapters);
}

void MoeMlp::split(const TensorSplit& over) {
  const std::int64_t all = hidden_;
  hidden_ = over.part(all, "numbers of an expert's intermediate size");
  // Where gate and up are interleaved, columns that follow one another are of both.
  gate_up_.split_outputs(over, fused_ && !limits_ ? std::vector{all, all} : std::vector<std::int64_t>());
  if (gate_up_bias_ >= 0) over.divide(gate_up_bias_, 1);
  down_.split_inputs(over);
}

MoeMlp::Saved MoeMlp::saved(SavedAllocator& allocator, BatchShape shape, DType dtype) const {
  const std::int64_t tokens = shape.batch * shape.tokens;
  Saved s;
  s.probs = allocator.kept().take(stat_dtype(dtype), {tokens, router_.out()});
  s.experts = allocator.kept().take(DType::i32, {tokens, top_k_});
  s.weights = allocator.kept().take(stat_dtype(dtype), {tokens, top_k_});
  s.gate_up = allocator.kept().take(dtype, {rows(shape), gate_up_.out()});
  if (shape.saves_outputs) s.product = allocator.kept().take(dtype, {rows(shape), hidden_});
  return s;
}

MoeMlp::Scratch MoeMlp::scratch(ScratchAllocator& allocator, const TensorView& saved_product, BatchShape shape,
                                DType dtype, Phase phase) const {
  const std::int64_t tokens = shape.batch * shape.tokens;
  Scratch w;
  w.dispatch = {.slots = allocator.take(DType::i32, {rows(shape)}),
                .rows = allocator.take(DType::i32, {rows(shape)}),
                .offsets = allocator.take(DType::i32, {router_.out() + 1})};
  w.rows = allocator.take(dtype, {rows(shape), channels_});
  std::size_t lora = router_.lora_workspace_bytes(tokens, dtype);
  for (const GroupedLinear* linear : {&gate_up_, &down_})
    lora = std::max(lora, linear->lora_workspace_bytes(rows(shape), dtype));
  w.lora = allocator.take_bytes(lora);
  if (phase != Phase::train && limits_) w.product = allocator.take(dtype, {rows(shape), hidden_});
  if (phase != Phase::train) return w;
  w.product = shape.saves_outputs ? saved_product : allocator.take(dtype, {rows(shape), hidden_});
  w.dproduct = allocator.take(dtype, {rows(shape), hidden_});
  if (weighs_inputs_) w.inputs = allocator.take(dtype, {rows(shape), channels_});
  w.dlogits = allocator.take(dtype, {tokens, router_.out()});
  w.dweights = allocator.take(stat_dtype(dtype), {tokens, top_k_});
  w.dprobs = allocator.take(DType::f64, {router_.out()});
  return w;
}

SavedBytes MoeMlp::saved_bytes(BatchShape shape, DType dtype) const {
  return saved_bytes_of([&](SavedAllocator& allocator) { (void)saved(allocator, shape, dtype); });
}

std::size_t MoeMlp::workspace_bytes(BatchShape shape, DType dtype, Phase phase) const {
  return bytes_of([&](ScratchAllocator& allocator) { (void)scratch(allocator, {}, shape, dtype, phase); });
}

namespace {

/// (E) fp64 of the layer: counts (0) or sums of probabilities (1); absent if not wanted. A recompute leaves what
/// forward has written, since ranks that share rows have summed it.
TensorView statistic(const ForwardArgs& args, int layer, int which) {
  if (args.batch == nullptr || !args.batch->router || args.recompute) return {};
  const TensorView row = args.batch->router.rows(layer, 1);
  return row.reshape({2, row.shape[2]}).rows(which, 1).reshape({row.shape[2]});
}

kernels::TokenFields fields_of(const Batch* batch, BatchShape shape) {
  return batch != nullptr ? token_fields(*batch, shape.packed) : kernels::TokenFields{};
}

}  // namespace

void MoeMlp::route(const ForwardArgs& args, const Saved& s, const Scratch& w) const {
  router_.forward({.params = args.params,
                   .x = args.x,
                   .y = s.probs,
                   .context = linear_context(w.lora, args.batch, args.phase),
                   .stream = args.stream});
  add_bias(args, router_bias_, /*offsets=*/{}, s.probs);
  kernels::route({.logits = s.probs,
                  .probs = s.probs,
                  .experts = s.experts,
                  .weights = s.weights,
                  .weigh = weigh_,
                  .counts = statistic(args, layer_, 0),
                  .sums = statistic(args, layer_, 1),
                  .fields = fields_of(args.batch, args.shape)},
                 args.stream);
}

void MoeMlp::add_bias(const ForwardArgs& args, int bias, const TensorView& offsets, const TensorView& y) const {
  if (bias < 0) return;
  const TensorView& of = at(args.params, bias);
  kernels::add_group_bias({.offsets = offsets, .bias = of.shape.rank() == 1 ? of.reshape({1, of.numel()}) : of, .y = y},
                          args.stream);
}

void MoeMlp::activate(const TensorView& gate_up, const Scratch& w, StreamView stream) const {
  if (limits_) return kernels::clamped_swiglu_forward({.gate_up = gate_up, .y = w.product, .limits = *limits_}, stream);
  kernels::swiglu_forward({.gate = gate(gate_up),
                           .up = up(gate_up),
                           .y = w.product ? w.product : gate(gate_up),
                           .stride = gate_up_.out(),
                           .stride_y = w.product ? 0 : gate_up_.out()},
                          stream);
}

void MoeMlp::forward(const ForwardArgs& args, const TensorView& residual) const {
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const Saved s = saved(saved_allocator, args.shape, args.x.dtype);
  const Scratch w = scratch(allocator, s.product, args.shape, args.x.dtype, args.phase);
  const TensorView product = w.product ? w.product : gate(s.gate_up);
  const auto apply = [&](const GroupedLinear& linear, const TensorView& x, std::int64_t stride_x, const TensorView& y) {
    linear.forward({.params = args.params,
                    .grads = {},
                    .offsets = w.dispatch.offsets,
                    .x = x,
                    .y = y,
                    .stride_x = stride_x,
                    .lora = w.lora,
                    .stream = args.stream});
  };
  const bool has_products = args.recompute && args.kept;
  if (has_products && !args.writes_y) return;

  if (!has_products) route(args, s, w);
  kernels::make_dispatch(s.experts, w.dispatch, args.stream);
  if (!has_products) {
    kernels::gather_rows(args.x, w.dispatch, w.rows, args.stream);
    if (weighs_inputs_) weigh_rows(w.rows, s, w, args.stream);
    apply(gate_up_, w.rows, 0, s.gate_up);
    add_bias(args, gate_up_bias_, w.dispatch.offsets, s.gate_up);
  }
  if (!args.writes_y) return;
  activate(s.gate_up, w, args.stream);
  apply(down_, product, w.product ? 0 : gate_up_.out(), w.rows);
  if (has_down_bias(args.batch)) add_bias(args, down_bias_, w.dispatch.offsets, w.rows);
  if (residual && residual.data != args.y.data) copy(residual, args.y, args.stream);
  kernels::combine_rows({.x = w.rows,
                         .weights = weighs_inputs_ ? TensorView{} : s.weights,
                         .dispatch = w.dispatch,
                         .y = args.y,
                         .accumulate = static_cast<bool>(residual)},
                        args.stream);
}

void MoeMlp::backward(const BackwardArgs& args) const {
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const Saved s = saved(saved_allocator, args.shape, args.x.dtype);
  const Scratch w = scratch(allocator, s.product, args.shape, args.x.dtype, Phase::train);

  kernels::make_dispatch(s.experts, w.dispatch, args.stream);
  backward_experts(args, s, w);  // writes the gradient of each row's input to w.rows, and dweights
  if (!through_router(args.wanted())) return;
  kernels::route_backward({.dweights = w.dweights,
                           .probs = s.probs,
                           .experts = s.experts,
                           .weights = s.weights,
                           .weigh = weigh_,
                           .balance = balance_gradient(args, w),
                           .fields = fields_of(args.batch, args.shape),
                           .dlogits = w.dlogits},
                          args.stream);
  const Linear::BackwardArgs router{.params = args.params,
                                    .grads = args.grads(),
                                    .x = args.x,
                                    .dy = w.dlogits,
                                    .dx = args.dx,
                                    .write = Write::add,
                                    .context = linear_context(w.lora, args.batch, Phase::train),
                                    .stream = args.stream};
  router_.backward_params(router);  // the last reader of x, whose memory dx may be
  if (is_wanted(args.wanted(), router_bias_))
    kernels::bias_backward(
        {.dy = w.dlogits, .dbias = args.grads()[router_bias_], .accumulate = args.grads().adds(router_bias_)},
        args.stream);
  if (!args.dx) return;
  kernels::combine_rows({.x = w.rows, .weights = {}, .dispatch = w.dispatch, .y = args.dx}, args.stream);
  router_.backward_input(router);
}

void MoeMlp::backward_down_bias(const BackwardArgs& args, const Saved& s, const Scratch& w) const {
  if (down_bias_ < 0) return;
  if (!has_down_bias(args.batch)) {
    if (is_wanted(args.wanted(), down_bias_) && !args.grads().adds(down_bias_))
      clear(args.grads()[down_bias_], args.stream);
    return;
  }
  if (through_product(args.wanted()) || through_router(args.wanted()))
    kernels::add_group_bias_weights(
        {.dispatch = w.dispatch, .bias = at(args.params, down_bias_), .dy = w.rows, .dweights = w.dweights},
        args.stream);
  if (is_wanted(args.wanted(), down_bias_))
    kernels::group_bias_gradient({.dispatch = w.dispatch,
                                  .dy = w.rows,
                                  .weights = s.weights,
                                  .dbias = args.grads()[down_bias_],
                                  .accumulate = args.grads().adds(down_bias_)},
                                 args.stream);
}

void MoeMlp::activate_backward(const TensorView& gate_up, const Scratch& w, StreamView stream) const {
  if (limits_)
    return kernels::clamped_swiglu_backward(
        {.gate_up = gate_up, .dy = w.dproduct, .dgate_up = gate_up, .limits = *limits_}, stream);
  kernels::swiglu_backward({.gate = gate(gate_up),
                            .up = up(gate_up),
                            .dy = w.dproduct,
                            .dgate = gate(gate_up),  // over the saved values, which nothing reads after
                            .dup = up(gate_up),
                            .stride = gate_up_.out()},
                           stream);
}

void MoeMlp::backward_experts(const BackwardArgs& args, const Saved& s, const Scratch& w) const {
  const auto part = [&](const TensorView& x, const TensorView& y) {
    return GroupedLinear::Args{.params = args.params,
                               .grads = args.grads(),
                               .offsets = w.dispatch.offsets,
                               .x = x,
                               .y = y,
                               .lora = w.lora,
                               .stream = args.stream};
  };
  const TensorView gate_up = s.gate_up;
  const Wanted wanted = args.wanted();
  const bool product = through_product(wanted), through_down = product || through_router(wanted);

  kernels::gather_rows(args.dy, w.dispatch, w.rows, args.stream);
  if (!s.product) activate(gate_up, w, args.stream);
  if (through_down) down_.backward_input(part(w.dproduct, w.rows));
  if (!weighs_inputs_)
    kernels::combine_weights_backward({.a = w.product,
                                       .b = through_down ? w.dproduct : TensorView{},
                                       .weights = s.weights,
                                       .dispatch = w.dispatch,
                                       .dweights = through_down ? w.dweights : TensorView{}},
                                      args.stream);
  backward_down_bias(args, s, w);
  down_.backward_params(part(w.product, w.rows));
  if (!product) return;
  activate_backward(gate_up, w, args.stream);
  if (is_wanted(wanted, gate_up_bias_))
    kernels::group_bias_gradient({.dispatch = w.dispatch,
                                  .dy = gate_up,
                                  .weights = {},
                                  .dbias = args.grads()[gate_up_bias_],
                                  .accumulate = args.grads().adds(gate_up_bias_)},
                                 args.stream);
  if (weighs_inputs_) return backward_weighed(args, s, w);
  if (gate_up_.has_wanted(wanted)) kernels::gather_rows(args.x, w.dispatch, w.rows, args.stream);
  gate_up_.backward_params(part(w.rows, gate_up));
  if (wanted.dx()) gate_up_.backward_input(part(w.rows, gate_up));
}

void MoeMlp::weigh_rows(const TensorView& rows, const Saved& s, const Scratch& w, StreamView stream) const {
  kernels::combine_weights_backward({.a = rows, .b = {}, .weights = s.weights, .dispatch = w.dispatch, .dweights = {}},
                                    stream);
}

void MoeMlp::backward_weighed(const BackwardArgs& args, const Saved& s, const Scratch& w) const {
  const auto part = [&](const TensorView& x) {
    return GroupedLinear::Args{.params = args.params,
                               .grads = args.grads(),
                               .offsets = w.dispatch.offsets,
                               .x = x,
                               .y = s.gate_up,
                               .lora = w.lora,
                               .stream = args.stream};
  };
  const bool through = through_router(args.wanted());
  if (through) gate_up_.backward_input(part(w.rows));
  kernels::gather_rows(args.x, w.dispatch, w.inputs, args.stream);
  kernels::combine_weights_backward({.a = w.inputs,
                                     .b = through ? w.rows : TensorView{},
                                     .weights = s.weights,
                                     .dispatch = w.dispatch,
                                     .dweights = through ? w.dweights : TensorView{}},
                                    args.stream);
  gate_up_.backward_params(part(w.inputs));
}

/// Of the ranks that have parts of the experts the first one adds it: a sum over them follows.
TensorView MoeMlp::balance_gradient(const BackwardArgs& args, const Scratch& w) const {
  if (balance_ == 0 || (args.batch && args.batch->tensor_rank > 0)) return {};
  TESSERA_ASSERT(args.batch && args.batch->router, "a balance loss without Batch::router");
  kernels::balance_gradient(
      {.of = balance_of(*args.batch, args.shape.packed), .coefficient = balance_, .out = w.dprobs}, args.stream);
  return w.dprobs;
}

double MoeMlp::recompute_flops(BatchShape shape, const RecomputeTask& what) const {
  const double router = what.keeps ? 0.0 : router_.flops_per_row(),
               products = what.keeps ? 0.0 : gate_up_.flops_per_row(),
               down = what.writes_y ? down_.flops_per_row() : 0.0;
  return static_cast<double>(shape.batch * shape.tokens) * (router + static_cast<double>(top_k_) * (products + down));
}

bool MoeMlp::has_wanted(const Wanted& wanted) const {
  return through_router(wanted.with_dx(false)) || through_product(wanted.with_dx(false)) || down_.has_wanted(wanted) ||
         is_wanted(wanted, down_bias_);
}

bool MoeMlp::backward_reads_input(const Wanted& wanted) const {
  return weighs_inputs_ || router_.weight_wanted(wanted) || gate_up_.has_wanted(wanted);
}

double MoeMlp::backward_flops(BatchShape shape, const Wanted& wanted) const {
  const bool through_down = through_product(wanted) || through_router(wanted);
  const double expert =
      gate_up_.backward_flops_per_row(weighs_inputs_ ? wanted.with_dx(through_router(wanted)) : wanted) +
      down_.backward_flops_per_row(wanted.with_dx(through_down));
  return static_cast<double>(shape.batch * shape.tokens) *
         (router_.backward_flops_per_row(wanted) + static_cast<double>(top_k_) * expert);
}

}  // namespace tessera::models
