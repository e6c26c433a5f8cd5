// SPDX-License-Identifier: Apache-2.0
// The scan and its derivative are ours; norms and matrix products are Tessera's.
#include "recurrent_block.hpp"

#include <kernels/bias.hpp>
#include <models/embedding.hpp>
#include <models/head.hpp>

#include <cmath>

namespace recurrent {

using models::at;

namespace {

template <class T>
T sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

struct Scan {
  models::BatchShape shape;
  std::int64_t channels = 0;
  TensorView decay, gate, value, state;      // (C), then (B·T, C)
  TensorView dstate, dgate, dvalue, ddecay;  // backward only
  bool add_to_ddecay = false;
};

template <class T>
void scan_forward(const Scan& s) {
  const auto C = s.channels;
  const T *decay = s.decay.as<T>(), *gate = s.gate.as<T>(), *value = s.value.as<T>();
  T* state = s.state.as<T>();
  for (std::int64_t b = 0; b < s.shape.batch; ++b)
    for (std::int64_t t = 0; t < s.shape.tokens; ++t)
      for (std::int64_t c = 0; c < C; ++c) {
        const auto i = (b * s.shape.tokens + t) * C + c;
        const T a = sigmoid(decay[c]), before = t > 0 ? state[i - C] : T(0);
        state[i] = a * before + (T(1) - a) * (sigmoid(gate[i]) * value[i]);
      }
}

template <class T>
void scan_backward(const Scan& s) {
  const auto C = s.channels;
  const T *decay = s.decay.as<T>(), *gate = s.gate.as<T>(), *value = s.value.as<T>(), *state = s.state.as<T>();
  T *dstate = s.dstate.as<T>(), *dgate = s.dgate.as<T>(), *dvalue = s.dvalue.as<T>(),
    *ddecay = s.ddecay ? s.ddecay.as<T>() : nullptr;
  for (std::int64_t c = 0; ddecay != nullptr && !s.add_to_ddecay && c < C; ++c) ddecay[c] = 0;
  for (std::int64_t b = 0; b < s.shape.batch; ++b)
    for (std::int64_t t = s.shape.tokens - 1; t >= 0; --t)
      for (std::int64_t c = 0; c < C; ++c) {
        const auto i = (b * s.shape.tokens + t) * C + c;
        const T a = sigmoid(decay[c]), open = sigmoid(gate[i]), before = t > 0 ? state[i - C] : T(0);
        const T du = (T(1) - a) * dstate[i];
        dgate[i] = du * value[i] * open * (T(1) - open);
        dvalue[i] = du * open;
        if (ddecay != nullptr) ddecay[c] += dstate[i] * (before - open * value[i]) * a * (T(1) - a);
        if (t > 0) dstate[i - C] += a * dstate[i];
      }
}

void run(const Scan& s, void (*f32)(const Scan&), void (*f64)(const Scan&)) {
  (s.state.dtype == DType::f64 ? f64 : f32)(s);
}

}  // namespace

RecurrentBlock::RecurrentBlock(std::string name, std::int64_t channels, std::vector<tessera::ParamSpec>& params)
    : RecurrentBlock(std::move(name), channels, models::ParamList(params)) {}

RecurrentBlock::RecurrentBlock(std::string name, std::int64_t channels, models::ParamList list)
    : name_(std::move(name)),
      channels_(channels),
      norm_({.prefix = name_ + ".norm", .channels = channels}, list),
      gate_({.prefix = name_ + ".gate", .in = channels, .out = channels, .bias = true}, list),
      value_({.prefix = name_ + ".value", .in = channels, .out = channels}, list),
      out_({.prefix = name_ + ".out", .in = channels, .out = channels}, list),
      decay_(list.add({.name = name_ + ".decay",
                       .shape = {channels},
                       .init = {tessera::Initializer::Kind::normal, 1.0},
                       .decay = false})),
      params_(list.indices()) {}

RecurrentBlock::Saved RecurrentBlock::saved(models::ScratchAllocator& allocator, models::BatchShape shape,
                                            DType dtype) const {
  const std::int64_t rows = shape.batch * shape.tokens;
  Saved s;
  s.norm = norm_.allocate(allocator, rows, dtype);
  for (TensorView* view : {&s.gate, &s.value, &s.state}) *view = allocator.take(dtype, {rows, channels_});
  return s;
}

RecurrentBlock::Scratch RecurrentBlock::scratch(models::ScratchAllocator& allocator, models::BatchShape shape,
                                                DType dtype, models::Phase phase) const {
  const std::int64_t rows = shape.batch * shape.tokens;
  Scratch s;
  s.normed = allocator.take(dtype, {rows, channels_});
  if (phase != models::Phase::train) return s;
  for (TensorView* view : {&s.dstate, &s.dgate, &s.dvalue}) *view = allocator.take(dtype, {rows, channels_});
  s.norm = allocator.take_bytes(norm_.workspace_bytes(dtype));
  return s;
}

std::size_t RecurrentBlock::saved_bytes(models::BatchShape shape, DType dtype) const {
  models::ScratchAllocator allocator;  // without memory: it only counts
  (void)saved(allocator, shape, dtype);
  return allocator.bytes();
}

std::size_t RecurrentBlock::workspace_bytes(models::BatchShape shape, DType dtype, models::Phase phase) const {
  models::ScratchAllocator allocator;
  if (phase != models::Phase::train) (void)saved(allocator, shape, dtype);
  (void)scratch(allocator, shape, dtype, phase);
  return allocator.bytes();
}

double RecurrentBlock::forward_flops(models::BatchShape shape) const {
  return static_cast<double>(shape.batch * shape.tokens) *
         (gate_.flops_per_row() + value_.flops_per_row() + out_.flops_per_row());
}

void RecurrentBlock::forward(const models::ForwardArgs& args) const {
  const DType dtype = args.x.dtype;
  const bool train = args.phase == models::Phase::train;
  models::ScratchAllocator workspace(args.workspace), kept(train ? args.saved : TensorView{});
  const Saved s = saved(train ? kept : workspace, args.shape, dtype);
  const Scratch w = scratch(workspace, args.shape, dtype, args.phase);
  const TensorView x = args.x.reshape(w.normed.shape), y = args.y.reshape(w.normed.shape);

  norm_.forward(args.params, x, w.normed, s.norm, args.stream);
  gate_.forward({.params = args.params, .x = w.normed, .y = s.gate, .stream = args.stream});
  value_.forward({.params = args.params, .x = w.normed, .y = s.value, .stream = args.stream});
  run({.shape = args.shape,
       .channels = channels_,
       .decay = at(args.params, decay_),
       .gate = s.gate,
       .value = s.value,
       .state = s.state},
      scan_forward<float>, scan_forward<double>);
  out_.forward({.params = args.params, .x = s.state, .y = y, .addend = x, .stream = args.stream});
}

void RecurrentBlock::backward(const models::BackwardArgs& args) const {
  const DType dtype = args.x.dtype;
  models::ScratchAllocator workspace(args.workspace), kept(args.saved);
  const Saved s = saved(kept, args.shape, dtype);
  const Scratch w = scratch(workspace, args.shape, dtype, models::Phase::train);
  const models::Gradients grads{args.dparams, args.accumulate};
  const TensorView x = args.x.reshape(w.normed.shape), dy = args.dy.reshape(w.normed.shape);

  // Gradients without memory are not wanted; backward goes down only as far as one is.
  const models::Wanted wanted = args.wanted();
  const bool through_norm = wanted.dx() || norm_.has_wanted(wanted);
  const bool through_scan = through_norm || gate_.has_wanted(wanted) || value_.has_wanted(wanted) || wanted[decay_];

  out_.backward({.params = args.params,
                 .grads = grads,
                 .x = s.state,
                 .dy = dy,
                 .dx = through_scan ? w.dstate : TensorView{},
                 .stream = args.stream});
  if (!through_scan) return;
  run({.shape = args.shape,
       .channels = channels_,
       .decay = at(args.params, decay_),
       .gate = s.gate,
       .value = s.value,
       .state = s.state,
       .dstate = w.dstate,
       .dgate = w.dgate,
       .dvalue = w.dvalue,
       .ddecay = grads[decay_],
       .add_to_ddecay = grads.adds(decay_)},
      scan_backward<float>, scan_backward<double>);

  norm_.recompute(args.params, x, w.normed, s.norm, args.stream);
  gate_.backward({.params = args.params,
                  .grads = grads,
                  .x = w.normed,
                  .dy = w.dgate,
                  .dx = through_norm ? w.dstate : TensorView{},
                  .stream = args.stream});
  value_.backward({.params = args.params,
                   .grads = grads,
                   .x = w.normed,
                   .dy = w.dvalue,
                   .dx = through_norm ? w.normed : TensorView{},
                   .stream = args.stream});
  if (!through_norm) return;
  tessera::kernels::add({.x = w.dstate, .y = w.normed}, args.stream);
  // dx is dy's memory: the residual's gradient is there already, the branch's is added.
  norm_.backward({.params = args.params,
                  .grads = grads,
                  .x = x,
                  .dy = w.normed,
                  .dx = models::reshaped(args.dx, w.normed.shape),
                  .write = models::Write::add,
                  .saved = s.norm,
                  .workspace = w.norm,
                  .stream = args.stream});
}

models::Model make_model(int layers, std::int64_t channels, std::int64_t vocab, std::int64_t max_tokens, DType dtype) {
  models::Model model;
  model.family = "recurrent";
  model.hidden = channels;
  model.vocab = vocab;
  model.max_tokens = max_tokens;
  model.dtype = dtype;
  model.modules.push_back(std::make_unique<models::Embedding>(
      models::EmbeddingSpec{.tokens = "embed.weight", .vocab = vocab, .max_tokens = max_tokens, .channels = channels},
      model.params));
  for (int i = 0; i < layers; ++i)
    model.modules.push_back(std::make_unique<RecurrentBlock>("blocks." + std::to_string(i), channels, model.params));
  model.modules.push_back(std::make_unique<models::Head>(
      models::HeadSpec{
          .norm = {.prefix = "norm", .channels = channels}, .vocab = vocab, .channels = channels, .tied_to = 0},
      model.params));
  return model;
}

}  // namespace recurrent
