// SPDX-License-Identifier: Apache-2.0
// Head: the kernels for loss, gradients and logits, and the workspace between them.
#include "models/head.hpp"

#include "kernels/gemm.hpp"
#include "kernels/scale.hpp"
#include "models/linear.hpp"
#include "models/score_head.hpp"

namespace tessera::models {

void apply(const kernels::LogitRules& rules, const TensorView& logits, StreamView stream) {
  if (rules.scale != 1) kernels::scale({logits, rules.scale}, stream);
  if (rules.soft_cap > 0) kernels::soft_cap({logits, rules.soft_cap}, stream);
}

Head::Head(const HeadSpec& spec, ParamList list)
    : vocabulary_{spec.vocab},
      router_(spec.router),
      channels_(spec.channels),
      norm_(spec.norm, list),
      logits_(spec.logits),
      loss_(spec.loss) {
  weight_ =
      spec.tied_to >= 0
          ? list.share(spec.tied_to)
          : list.add(
                {.name = spec.weight, .shape = {spec.vocab, channels_}, .init = {Initializer::Kind::normal, spec.std}});
  params_ = list.indices();
}

int Head::make_score(std::vector<ParamSpec>& model, double std) {
  ParamSpec score{.name = score_weight, .shape = {1, channels_}, .init = {Initializer::Kind::normal, std}};
  int& index = params_[static_cast<std::size_t>(weight_)];
  const bool is_own = index + 1 == static_cast<int>(model.size());  // the last one that it has added
  if (is_own) {
    model[static_cast<std::size_t>(index)] = std::move(score);
  } else {
    model.push_back(std::move(score));
    index = static_cast<int>(model.size()) - 1;
  }
  vocabulary_.vocab = 1;
  scores_ = true;
  logits_ = {};  // of logits, not of scores
  return index;
}

void Head::adapt(AdapterMaker& adapters) {
  if (scores_) return;  // PEFT trains a score in full
  adapters.begin(params_);
  const std::int64_t vocab = vocabulary_.vocab;
  if (const auto positions = adapters.add(weight_, channels_, vocab, false, AdapterMaker::Kind::head))
    lora_.emplace(*positions, channels_, vocab, adapters.spec());
}

Head::Scratch Head::scratch(ScratchAllocator& allocator, BatchShape shape, DType dtype, Phase phase) const {
  const std::int64_t rows = phase == Phase::logits ? shape.batch : shape.batch * shape.tokens;
  Scratch s;
  s.normed = allocator.take(dtype, {rows, channels_});
  if (phase == Phase::logits) {
    if (lora_) s.lora = allocator.take_bytes(lora_->workspace_bytes(rows, dtype));
    return s;
  }
  if (lora_) s.low = lora_->half(allocator, rows, dtype, phase == Phase::train);
  if (phase == Phase::train) s.statistics = norm_.allocate(allocator, rows, dtype);
  const std::size_t mark = allocator.mark();
  s.loss = allocator.take_bytes(loss_->workspace_bytes(shape, vocabulary_.vocab, dtype));
  allocator.rewind(mark);
  if (phase == Phase::train) s.norm = allocator.take_bytes(norm_.workspace_bytes(dtype, shape.device));
  return s;
}

std::size_t Head::workspace_bytes(BatchShape shape, DType dtype, Phase phase) const {
  return bytes_of([&](ScratchAllocator& allocator) {
    if (vocabulary_.is_split()) (void)stage_scratch(allocator, shape, dtype, phase);
    else (void)scratch(allocator, shape, dtype, phase);
  });
}

void Head::forward(const ForwardArgs& args) const {
  if (args.phase == Phase::train && counts_router()) pass_router(args);
  if (vocabulary_.is_split()) return forward_stage(args);
  switch (args.phase) {
    case Phase::train: return;  // backward gets x
    case Phase::eval: return forward_loss(args);
    case Phase::logits: return forward_logits(args);
  }
}

void Head::forward_loss(const ForwardArgs& args) const {
  ScratchAllocator allocator(args.workspace);
  const Scratch w = scratch(allocator, args.shape, args.x.dtype, Phase::eval);
  const std::int64_t rows = args.shape.batch * args.shape.tokens;
  norm_.forward(args.params, args.x.reshape({rows, channels_}), w.normed, {}, args.stream);
  kernels::LinearCrossEntropyArgs::LowRank low;
  if (lora_)
    low = lora_->forward_half({.params = args.params,
                               .grads = {},
                               .x = w.normed,
                               .y = {},
                               .y_stride = 0,
                               .context = {},
                               .stream = args.stream},
                              w.low, /*wanted_low=*/false);
  loss_->compute({.shape = args.shape,
                  .x = w.normed,
                  .weight = at(args.params, weight_),
                  .batch = args.batch,
                  .workspace = w.loss,
                  .logits = logits_,
                  .low = low,
                  .stream = args.stream});
}

void Head::forward_logits(const ForwardArgs& args) const {
  ScratchAllocator allocator(args.workspace);
  const Scratch w = scratch(allocator, args.shape, args.x.dtype, Phase::logits);
  normalize_last(args, w.normed);
  kernels::gemm({.a = w.normed, .b = at(args.params, weight_), .c = args.batch->logits, .trans_b = true}, args.stream);
  if (lora_)
    lora_->forward({.params = args.params,
                    .grads = {},
                    .x = w.normed,
                    .y = args.batch->logits,
                    .y_stride = 0,
                    .context = {.lora = w.lora},
                    .stream = args.stream});
  apply(logits_, args.batch->logits, args.stream);
}

void Head::normalize_last(const ForwardArgs& args, const TensorView& normed) const {
  const TensorView x = args.x.reshape({args.shape.batch * args.shape.tokens, channels_});
  const std::int32_t* lengths = args.batch->lengths;
  const bool is_last = args.shape.tokens == 1;  // every token of its row
  for (std::int64_t b = 0; b < args.shape.batch && !is_last; ++b)
    copy(x.rows(b * args.shape.tokens + (lengths ? lengths[b] : args.shape.tokens) - 1, 1), normed.rows(b, 1),
         args.stream);
  norm_.forward(args.params, is_last ? x : normed, normed, {}, args.stream);
}

void Head::backward(const BackwardArgs& args) const {
  if (vocabulary_.is_split()) return backward_stage(args);
  if (args.stage > 0) return;  // of statistics, which have no gradient
  ScratchAllocator allocator(args.workspace);
  const Scratch w = scratch(allocator, args.shape, args.x.dtype, Phase::train);
  const Gradients grads = args.grads();
  const std::int64_t rows = args.shape.batch * args.shape.tokens;
  const TensorView x = args.x.reshape({rows, channels_}), dx = reshaped(args.dx, {rows, channels_});
  // The gradient of the normed x: in dx, where the norm's backward works in place, or, if only the norm's parameters
  // need it, in the memory of the normed x.
  const bool through_weight = dx || norm_.has_wanted(args.wanted());
  const TensorView dnormed = dx ? dx : through_weight ? w.normed : TensorView{};

  norm_.forward(args.params, x, w.normed, w.statistics, args.stream);
  LoraBranch::Args branch{.params = args.params,
                          .grads = grads,
                          .x = w.normed,
                          .y = {},
                          .y_stride = 0,
                          .context = linear_context({}, args.batch, Phase::train),
                          .stream = args.stream};
  kernels::LinearCrossEntropyArgs::LowRank low;
  const bool through_low = lora_ && (through_weight || lora_->has_wanted(args.wanted()));
  if (lora_) low = lora_->forward_half(branch, w.low, through_low);
  loss_->compute({.shape = args.shape,
                  .x = w.normed,
                  .weight = at(args.params, weight_),
                  .batch = args.batch,
                  .workspace = w.loss,
                  .logits = logits_,
                  .dx = dnormed,
                  .dweight = grads[weight_],
                  .accumulate = grads.adds(weight_),
                  .low = low,
                  .stream = args.stream});
  branch.x = dnormed;
  if (through_low) lora_->backward_half(branch, w.low);
  if (!through_weight) return;
  norm_.backward({.params = args.params,
                  .grads = grads,
                  .x = x,
                  .dy = dnormed,
                  .dx = dx,
                  .saved = w.statistics,
                  .workspace = w.norm,
                  .stream = args.stream});
}

double Head::forward_flops(BatchShape shape) const {
  shape = all_tokens(shape, vocabulary_.ranks);
  const auto rows = static_cast<double>(shape.batch * shape.tokens);
  return 2.0 * rows * static_cast<double>(vocabulary_.largest()) * static_cast<double>(channels_) +
         (lora_ ? lora_->flops_per_row() * rows : 0.0);
}

double Head::backward_flops(BatchShape shape, const Wanted& wanted) const {
  const bool through_weight = wanted.dx() || norm_.has_wanted(wanted);
  const BatchShape all = all_tokens(shape, vocabulary_.ranks);
  const auto rows = static_cast<double>(all.batch * all.tokens);
  return 2.0 * rows * static_cast<double>(vocabulary_.largest()) * static_cast<double>(channels_) *
             ((wanted[weight_] ? 1.0 : 0.0) + (through_weight ? 1.0 : 0.0)) +
         (lora_ ? rows * lora_->backward_flops_per_row(wanted.with_dx(through_weight)) : 0.0);
}

}  // namespace tessera::models
