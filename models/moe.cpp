// MoeMlp: saved are the router's choice, gate and up; everything else is made again in backward.
#include "models/moe.hpp"

#include <cstring>

#include "kernels/swiglu.hpp"
#include "models/balance.hpp"

namespace tessera::models {

MoeMlp::MoeMlp(const MoeMlpSpec& spec, ParamList& params)
    : channels_(spec.router.in), hidden_(spec.experts.front().up.out), chosen_(spec.chosen), normalise_(spec.normalise),
      layer_(spec.layer), balance_(spec.balance), router_(spec.router, params) {
  for (const MoeMlpSpec::Expert& expert : spec.experts)
    experts_.push_back({Linear(expert.gate, params), Linear(expert.up, params), Linear(expert.down, params)});
  TESSERA_ASSERT(router_.out() == static_cast<std::int64_t>(experts_.size()) && chosen_ > 0 && chosen_ <= router_.out());
}

MoeMlp::Saved MoeMlp::saved(Carver& carver, BatchShape shape, DType dtype) const {
  const std::int64_t tokens = shape.batch * shape.tokens;
  Saved s;
  s.probs = carver.take(stat_dtype(dtype), {tokens, router_.out()});
  s.experts = carver.take(DType::i32, {tokens, chosen_});
  s.weights = carver.take(stat_dtype(dtype), {tokens, chosen_});
  s.gate = carver.take(dtype, {rows(shape), hidden_});
  s.up = carver.take(dtype, {rows(shape), hidden_});
  return s;
}

MoeMlp::Scratch MoeMlp::scratch(Carver& carver, BatchShape shape, DType dtype, Phase phase) const {
  const std::int64_t tokens = shape.batch * shape.tokens;
  Scratch w;
  w.dispatch = {.slots = carver.take(DType::i32, {rows(shape)}), .rows = carver.take(DType::i32, {rows(shape)}),
                .offsets = carver.take(DType::i32, {router_.out() + 1})};
  w.rows = carver.take(dtype, {rows(shape), channels_});
  if (phase != Phase::train) return w;
  w.product = carver.take(dtype, {rows(shape), hidden_});
  w.dproduct = carver.take(dtype, {rows(shape), hidden_});
  w.dlogits = carver.take(dtype, {tokens, router_.out()});
  w.dweights = carver.take(stat_dtype(dtype), {tokens, chosen_});
  w.dprobs = carver.take(DType::f64, {router_.out()});
  return w;
}

std::size_t MoeMlp::saved_bytes(BatchShape shape, DType dtype) const {
  Carver carver;
  (void)saved(carver, shape, dtype);
  return carver.bytes();
}

std::size_t MoeMlp::workspace_bytes(BatchShape shape, DType dtype, Phase phase) const {
  Carver carver;
  (void)scratch(carver, shape, dtype, phase);
  return carver.bytes();
}

namespace {

/// The rows of expert e.
TensorView of_expert(const TensorView& all, const kernels::Dispatch& dispatch, std::size_t e) {
  const auto* offsets = dispatch.offsets.as<std::int32_t>();
  return all.rows(offsets[e], offsets[e + 1] - offsets[e]);
}

/// (E) f64 of the layer: choices (0) or sums of probabilities (1); absent where nobody asks.
TensorView statistic(const Batch* batch, int layer, int which) {
  if (batch == nullptr || !batch->router) return {};
  const TensorView row = batch->router.rows(layer, 1);
  return row.reshape({2, row.shape[2]}).rows(which, 1).reshape({row.shape[2]});
}

/// Calls f(first element of its row of E) for every token of padding.
template <class F>
void each_padding(const Batch* batch, std::int64_t experts, const F& f) {
  if (batch == nullptr || !batch->positions) return;
  for (std::int64_t t = 0; t < batch->ids.numel(); ++t)
    if (is_padding(*batch, t)) f(t * experts);
}

/// Takes the choices of padding out of the layer's statistics.
void forget_padding(const Batch* batch, int layer, const TensorView& probs, const TensorView& chosen) {
  const TensorView counts = statistic(batch, layer, 0), sums = statistic(batch, layer, 1);
  const std::int64_t experts = probs.shape[1], each = chosen.shape[1];
  if (!counts) return;
  each_padding(batch, experts, [&](std::int64_t first) {
    for (std::int64_t k = 0; k < each; ++k) counts.as<double>()[chosen.as<std::int32_t>()[first / experts * each + k]] -= 1;
    for (std::int64_t e = 0; e < experts; ++e)
      sums.as<double>()[e] -= probs.dtype == DType::f64 ? probs.as<double>()[first + e] : static_cast<double>(probs.as<float>()[first + e]);
  });
}

/// The balance loss is no business of padding, and no other loss reaches it: its gradient is zero.
void clear_padding(const Batch* batch, const TensorView& dlogits) {
  const std::int64_t experts = dlogits.shape[1];
  each_padding(batch, experts, [&](std::int64_t first) {
    std::memset(static_cast<char*>(dlogits.data) + static_cast<std::size_t>(first) * size_of(dlogits.dtype), 0,
                static_cast<std::size_t>(experts) * size_of(dlogits.dtype));
  });
}

}  // namespace

void MoeMlp::forward(const ForwardArgs& args) const {
  Carver saved_carver(args.saved), carver(args.workspace);
  const Saved s = saved(saved_carver, args.shape, args.x.dtype);
  const Scratch w = scratch(carver, args.shape, args.x.dtype, args.phase);
  const TensorView product = w.product ? w.product : s.gate;

  router_.forward({.params = args.params, .x = args.x, .y = s.probs, .stream = args.stream});
  kernels::route({.logits = s.probs, .probs = s.probs, .experts = s.experts, .weights = s.weights, .normalise = normalise_,
                  .counts = statistic(args.batch, layer_, 0), .sums = statistic(args.batch, layer_, 1)}, args.stream);
  forget_padding(args.batch, layer_, s.probs, s.experts);
  kernels::make_dispatch(s.experts, w.dispatch, args.stream);
  kernels::gather_rows(args.x, w.dispatch, w.rows, args.stream);
  const auto apply = [&](const Linear& linear, std::size_t e, const TensorView& x, const TensorView& y) {
    linear.forward({.params = args.params, .x = of_expert(x, w.dispatch, e), .y = of_expert(y, w.dispatch, e), .stream = args.stream});
  };
  for (std::size_t e = 0; e < experts_.size(); ++e) {
    apply(experts_[e].gate, e, w.rows, s.gate);
    apply(experts_[e].up, e, w.rows, s.up);
  }
  kernels::swiglu_forward({.gate = s.gate, .up = s.up, .y = product}, args.stream);
  for (std::size_t e = 0; e < experts_.size(); ++e) apply(experts_[e].down, e, product, w.rows);
  copy(args.residual, args.y, args.stream);
  kernels::combine_rows({.x = w.rows, .weights = s.weights, .dispatch = w.dispatch, .y = args.y, .accumulate = true}, args.stream);
}

void MoeMlp::backward(const BackwardArgs& args) const {
  Carver saved_carver(args.saved), carver(args.workspace);
  const Saved s = saved(saved_carver, args.shape, args.x.dtype);
  const Scratch w = scratch(carver, args.shape, args.x.dtype, Phase::train);

  kernels::make_dispatch(s.experts, w.dispatch, args.stream);
  backward_experts(args, s, w);  // leaves the gradient of each row's x in w.rows, and dweights
  kernels::route_backward({.dweights = w.dweights, .probs = s.probs, .experts = s.experts, .weights = s.weights,
                           .normalise = normalise_, .balance = balance_gradient(args, w), .dlogits = w.dlogits}, args.stream);
  clear_padding(args.batch, w.dlogits);
  const Linear::BackwardArgs router{.params = args.params, .grads = args.grads, .x = args.x, .dy = w.dlogits, .dx = args.dx,
                                    .write = Write::add, .stream = args.stream};
  router_.backward_params(router);  // the last to read x, which dx may be
  kernels::combine_rows({.x = w.rows, .weights = {}, .dispatch = w.dispatch, .y = args.dx}, args.stream);
  router_.backward_input(router);
}

void MoeMlp::backward_experts(const BackwardArgs& args, const Saved& s, const Scratch& w) const {
  const auto part = [&](std::size_t e, const TensorView& x, const TensorView& dy, const TensorView& dx, Write write) {
    return Linear::BackwardArgs{.params = args.params, .grads = args.grads, .x = of_expert(x, w.dispatch, e),
                                .dy = of_expert(dy, w.dispatch, e), .dx = of_expert(dx, w.dispatch, e), .write = write,
                                .stream = args.stream};
  };
  kernels::gather_rows(args.dy, w.dispatch, w.rows, args.stream);
  kernels::swiglu_forward({.gate = s.gate, .up = s.up, .y = w.product}, args.stream);
  for (std::size_t e = 0; e < experts_.size(); ++e) experts_[e].down.backward_input(part(e, w.product, w.rows, w.dproduct, Write::overwrite));
  kernels::weigh_rows({.a = w.product, .b = w.dproduct, .weights = s.weights, .dispatch = w.dispatch, .dweights = w.dweights}, args.stream);
  for (std::size_t e = 0; e < experts_.size(); ++e) experts_[e].down.backward_params(part(e, w.product, w.rows, w.dproduct, Write::overwrite));
  const TensorView dgate = w.dproduct, dup = w.product;
  kernels::swiglu_backward({.gate = s.gate, .up = s.up, .dy = w.dproduct, .dgate = dgate, .dup = dup}, args.stream);
  kernels::gather_rows(args.x, w.dispatch, w.rows, args.stream);
  for (std::size_t e = 0; e < experts_.size(); ++e) {
    experts_[e].gate.backward_params(part(e, w.rows, dgate, w.rows, Write::overwrite));
    experts_[e].up.backward_params(part(e, w.rows, dup, w.rows, Write::overwrite));
    experts_[e].gate.backward_input(part(e, w.rows, dgate, w.rows, Write::overwrite));
    experts_[e].up.backward_input(part(e, w.rows, dup, w.rows, Write::add));
  }
}

TensorView MoeMlp::balance_gradient(const BackwardArgs& args, const Scratch& w) const {
  if (balance_ == 0) return {};
  TESSERA_ASSERT(args.batch && args.batch->router, "a balance loss without Batch::router");
  models::balance_gradient(args.batch->router, choosing_tokens(*args.batch), balance_ * balance_weight(*args.batch), w.dprobs);
  return w.dprobs;
}

double MoeMlp::forward_flops(BatchShape shape) const {
  const Expert& one = experts_.front();
  const double expert = one.gate.flops_per_row() + one.up.flops_per_row() + one.down.flops_per_row();
  return static_cast<double>(shape.batch * shape.tokens) * (router_.flops_per_row() + static_cast<double>(chosen_) * expert);
}

}  // namespace tessera::models
