// SPDX-License-Identifier: Apache-2.0
// MoeMlp: saves the router's choice, gate and up, and their product with BatchShape::saves_outputs; backward recomputes
// the rest, and writes the gradients of gate and up over gate and up.
#include "models/moe.hpp"

#include <algorithm>

#include "kernels/balance.hpp"
#include "kernels/swiglu.hpp"

namespace tessera::models {

MoeMlp::MoeMlp(const MoeMlpSpec& spec, ParamList& params)
    : channels_(spec.router.in),
      hidden_(spec.experts.front().up.out),
      top_k_(spec.top_k),
      normalize_(spec.normalize),
      layer_(spec.layer),
      balance_(spec.balance),
      router_(spec.router, params) {
  for (const MoeMlpSpec::Expert& expert : spec.experts) {
    gate_up_.add({expert.gate, expert.up}, params);
    down_.add({expert.down}, params);
  }
  TESSERA_ASSERT(router_.out() == static_cast<std::int64_t>(spec.experts.size()) && top_k_ > 0 &&
                 top_k_ <= router_.out());
}

void MoeMlp::adapt(AdapterMaker& adapters) {
  router_.adapt(adapters, AdapterMaker::Kind::router);
  for (GroupedLinear* linear : {&gate_up_, &down_}) linear->adapt(adapters, top_k_);
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
  if (phase != Phase::train) return w;
  w.product = shape.saves_outputs ? saved_product : allocator.take(dtype, {rows(shape), hidden_});
  w.dproduct = allocator.take(dtype, {rows(shape), hidden_});
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

/// (E) fp64 of the layer: counts (0) or sums of probabilities (1); absent if not wanted.
TensorView statistic(const Batch* batch, int layer, int which) {
  if (batch == nullptr || !batch->router) return {};
  const TensorView row = batch->router.rows(layer, 1);
  return row.reshape({2, row.shape[2]}).rows(which, 1).reshape({row.shape[2]});
}

kernels::TokenFields fields_of(const Batch* batch) {
  return batch != nullptr ? token_fields(*batch) : kernels::TokenFields{};
}

}  // namespace

void MoeMlp::route(const ForwardArgs& args, const Saved& s, const Scratch& w) const {
  router_.forward({.params = args.params,
                   .x = args.x,
                   .y = s.probs,
                   .context = linear_context(w.lora, args.batch, args.phase),
                   .stream = args.stream});
  kernels::route({.logits = s.probs,
                  .probs = s.probs,
                  .experts = s.experts,
                  .weights = s.weights,
                  .normalize = normalize_,
                  .counts = statistic(args.batch, layer_, 0),
                  .sums = statistic(args.batch, layer_, 1),
                  .fields = fields_of(args.batch)},
                 args.stream);
}

void MoeMlp::forward(const ForwardArgs& args, const TensorView& residual) const {
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const Saved s = saved(saved_allocator, args.shape, args.x.dtype);
  const Scratch w = scratch(allocator, s.product, args.shape, args.x.dtype, args.phase);
  const std::int64_t stride = gate_up_.out();  // of gate and up
  const TensorView product = w.product ? w.product : gate(s.gate_up);
  const std::int64_t stride_product = w.product ? 0 : stride;
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
    apply(gate_up_, w.rows, 0, s.gate_up);
  }
  if (!args.writes_y) return;
  kernels::swiglu_forward(
      {.gate = gate(s.gate_up), .up = up(s.gate_up), .y = product, .stride = stride, .stride_y = stride_product},
      args.stream);
  apply(down_, product, stride_product, w.rows);
  copy(residual, args.y, args.stream);
  kernels::combine_rows({.x = w.rows, .weights = s.weights, .dispatch = w.dispatch, .y = args.y, .accumulate = true},
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
                           .normalize = normalize_,
                           .balance = balance_gradient(args, w),
                           .fields = fields_of(args.batch),
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
  if (!args.dx) return;
  kernels::combine_rows({.x = w.rows, .weights = {}, .dispatch = w.dispatch, .y = args.dx}, args.stream);
  router_.backward_input(router);
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
  const std::int64_t stride = gate_up_.out();  // of gate and up
  const Wanted wanted = args.wanted();
  const bool product = through_product(wanted), through_down = product || through_router(wanted);

  kernels::gather_rows(args.dy, w.dispatch, w.rows, args.stream);
  if (!s.product)
    kernels::swiglu_forward({.gate = gate(gate_up), .up = up(gate_up), .y = w.product, .stride = stride}, args.stream);
  if (through_down) down_.backward_input(part(w.dproduct, w.rows));
  kernels::combine_weights_backward({.a = w.product,
                                     .b = through_down ? w.dproduct : TensorView{},
                                     .weights = s.weights,
                                     .dispatch = w.dispatch,
                                     .dweights = through_down ? w.dweights : TensorView{}},
                                    args.stream);
  down_.backward_params(part(w.product, w.rows));
  if (!product) return;
  kernels::swiglu_backward({.gate = gate(gate_up),
                            .up = up(gate_up),
                            .dy = w.dproduct,
                            .dgate = gate(gate_up),  // over the saved values, which nothing reads after
                            .dup = up(gate_up),
                            .stride = stride},
                           args.stream);
  if (gate_up_.has_wanted(wanted)) kernels::gather_rows(args.x, w.dispatch, w.rows, args.stream);
  gate_up_.backward_params(part(w.rows, gate_up));
  if (wanted.dx()) gate_up_.backward_input(part(w.rows, gate_up));
}

TensorView MoeMlp::balance_gradient(const BackwardArgs& args, const Scratch& w) const {
  if (balance_ == 0) return {};
  TESSERA_ASSERT(args.batch && args.batch->router, "a balance loss without Batch::router");
  kernels::balance_gradient({.of = balance_of(*args.batch), .coefficient = balance_, .out = w.dprobs}, args.stream);
  return w.dprobs;
}

double MoeMlp::recompute_flops(BatchShape shape, const RecomputeTask& what) const {
  const double router = what.keeps ? 0.0 : router_.flops_per_row(),
               products = what.keeps ? 0.0 : gate_up_.flops_per_row(),
               down = what.writes_y ? down_.flops_per_row() : 0.0;
  return static_cast<double>(shape.batch * shape.tokens) * (router + static_cast<double>(top_k_) * (products + down));
}

bool MoeMlp::has_wanted(const Wanted& wanted) const {
  return router_.has_wanted(wanted) || through_product(wanted.with_dx(false)) || down_.has_wanted(wanted);
}

bool MoeMlp::backward_reads_input(const Wanted& wanted) const {
  return router_.weight_wanted(wanted) || gate_up_.has_wanted(wanted);
}

double MoeMlp::backward_flops(BatchShape shape, const Wanted& wanted) const {
  const bool through_down = through_product(wanted) || through_router(wanted);
  const double expert =
      gate_up_.backward_flops_per_row(wanted) + down_.backward_flops_per_row(wanted.with_dx(through_down));
  return static_cast<double>(shape.batch * shape.tokens) *
         (router_.backward_flops_per_row(wanted) + static_cast<double>(top_k_) * expert);
}

}  // namespace tessera::models
