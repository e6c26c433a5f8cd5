// SPDX-License-Identifier: Apache-2.0
// Log-probabilities by the kernel of cross-entropy, then the loss of pairs, then gradients by the same kernel.
#include "models/preference_loss.hpp"

#include <algorithm>

#include "models/head.hpp"
#include "models/scratch_allocator.hpp"
#include "runtime/base/error.hpp"

namespace tessera::models {

namespace {

/// Cross-entropy of the rows of a head, as kernels take it, without gradients.
kernels::LinearCrossEntropyArgs forward_args(const LossArgs& args, const TensorView& workspace,
                                             const TensorView& log_probs, const TensorView& squares = {}) {
  kernels::LinearCrossEntropyArgs made{.x = args.x,
                                       .weight = args.weight,
                                       .targets = args.batch->targets.reshape(Shape{args.x.shape[0]}),
                                       .weights = {},
                                       .logits = args.logits,
                                       .log_probs = log_probs.reshape(Shape{args.x.shape[0]}),
                                       .workspace = workspace,
                                       .dx = {},
                                       .dweight = {},
                                       .low = args.low,
                                       .log_sum_squares = squares};
  made.low.dx = made.low.dweight = {};
  return made;
}

std::size_t cross_entropy_bytes(BatchShape shape, std::int64_t vocab, DType dtype) {
  return kernels::linear_cross_entropy_workspace(shape.batch * shape.tokens, vocab, dtype, shape.device);
}

class PreferenceLoss final : public Loss {
 public:
  explicit PreferenceLoss(std::vector<PreferenceTerm> terms)
      : terms_(std::move(terms)),
        sorts_(std::ranges::any_of(terms_, [](const PreferenceTerm& term) { return term.spec.sorted(); })),
        weighted_(terms_.front().spec.weighted) {}

  void compute(const LossArgs& args) const override {
    const Batch& batch = *args.batch;
    ScratchAllocator allocator(args.workspace);
    const Scratch w = scratch(allocator, args.shape, args.weight.shape[0], args.x.dtype);
    kernels::linear_cross_entropy(forward_args(args, w.logits, w.log_probs, w.squares), args.stream);
    const double tail_weight = terms_.front().spec.tail_weight;
    const bool trains = args.dx || args.dweight || args.low.dx || args.low.dweight;
    TensorView reference = batch.reference_sums;
    if (!reference && batch.reference) {
      reference = w.reference;
      kernels::sum_sequences({{batch.reference, batch.targets, batch.sequence_ends}, reference, tail_weight},
                             args.stream);
    }
    const kernels::SequenceRows rows{w.log_probs, batch.targets, batch.sequence_ends, w.squares};
    const TensorView weights = trains ? w.weights : TensorView{};
    for (const PreferenceTerm& term : terms_) {
      const bool is_further = &term != terms_.data();
      const TensorView matched = term.spec.sorted() ? w.matched : TensorView{};
      if (matched)
        kernels::match_sorted({term.spec.kind, rows, reference, w.sorted, matched, tail_weight}, args.stream);
      if (term.spec.labelled())
        kernels::labelled_loss({term.spec, rows, reference, batch.labels, batch.kl, weights, batch.sums, batch.metrics},
                               args.stream);
      else
        kernels::preference_loss({.spec = term.spec,
                                  .rows = rows,
                                  .reference_sums = reference,
                                  .matched = matched,
                                  .nll_weights = batch.nll_weights,
                                  .weights = weights,
                                  .sums = batch.sums,
                                  .metrics = is_further ? nullptr : batch.metrics,
                                  .factor = term.weight,
                                  .is_further = is_further},
                                 args.stream);
    }
    if (!trains) return;
    kernels::LinearCrossEntropyArgs backward = forward_args(args, w.logits, w.log_probs);
    backward.log_probs = {};
    backward.weights = w.weights.reshape(Shape{args.x.shape[0]});
    backward.loss_scale = batch.loss_scale;
    backward.dx = args.dx;
    backward.dweight = args.dweight;
    backward.accumulate = args.accumulate;
    backward.low = args.low;
    kernels::linear_cross_entropy(backward, args.stream);
  }
  [[nodiscard]] int num_metrics() const override { return kernels::num_preference_sums; }
  [[nodiscard]] std::size_t workspace_bytes(BatchShape shape, std::int64_t vocab, DType dtype) const override {
    return bytes_of([&](ScratchAllocator& allocator) { (void)scratch(allocator, shape, vocab, dtype); });
  }

 private:
  struct Scratch {
    TensorView log_probs, weights;  // (B, T) fp32
    TensorView squares;             // (B, T) fp64, of weighted pairs; else absent
    TensorView reference;           // fp64, one of each sequence
    TensorView sorted, matched;     // fp64, two and one of each, of pairs that are sorted together; else absent
    TensorView logits;              // of cross-entropy
  };
  Scratch scratch(ScratchAllocator& allocator, BatchShape shape, std::int64_t vocab, DType dtype) const {
    Scratch s;
    s.log_probs = allocator.take(DType::f32, {shape.batch, shape.tokens});
    s.weights = allocator.take(DType::f32, {shape.batch, shape.tokens});
    if (weighted_) s.squares = allocator.take(DType::f64, {shape.batch, shape.tokens});
    s.reference = allocator.take(DType::f64, {shape.num_sequences()});
    if (sorts_) s.sorted = allocator.take(DType::f64, {2, shape.num_sequences()});
    if (sorts_) s.matched = allocator.take(DType::f64, {shape.num_sequences()});
    s.logits = allocator.take_bytes(cross_entropy_bytes(shape, vocab, dtype));
    return s;
  }

  std::vector<PreferenceTerm> terms_;
  bool sorts_, weighted_;
};

class TargetLogProbs final : public Loss {
 public:
  void compute(const LossArgs& args) const override {
    kernels::linear_cross_entropy(forward_args(args, args.workspace, args.batch->reference), args.stream);
  }
  [[nodiscard]] std::size_t workspace_bytes(BatchShape shape, std::int64_t vocab, DType dtype) const override {
    return cross_entropy_bytes(shape, vocab, dtype);
  }
};

class SequenceLogProbs final : public Loss {
 public:
  explicit SequenceLogProbs(double tail_weight) : tail_weight_(tail_weight) {}

  void compute(const LossArgs& args) const override {
    ScratchAllocator allocator(args.workspace);
    const TensorView log_probs = allocator.take(DType::f32, {args.shape.batch, args.shape.tokens});
    const TensorView logits = allocator.take_bytes(cross_entropy_bytes(args.shape, args.weight.shape[0], args.x.dtype));
    kernels::LinearCrossEntropyArgs forward = forward_args(args, logits, log_probs);
    forward.sums = args.batch->sums;
    kernels::linear_cross_entropy(forward, args.stream);
    const Batch& batch = *args.batch;
    kernels::sum_sequences({{log_probs, batch.targets, batch.sequence_ends}, batch.sequence_values, tail_weight_},
                           args.stream);
  }
  [[nodiscard]] bool writes_sequences() const override { return true; }
  [[nodiscard]] std::size_t workspace_bytes(BatchShape shape, std::int64_t vocab, DType dtype) const override {
    return bytes_of([&](ScratchAllocator& allocator) {
      (void)allocator.take(DType::f32, {shape.batch, shape.tokens});
      (void)allocator.take_bytes(cross_entropy_bytes(shape, vocab, dtype));
    });
  }

 private:
  double tail_weight_;
};

}  // namespace

std::shared_ptr<const Loss> preference_loss(const kernels::PreferenceSpec& spec) {
  return preference_loss(std::vector<PreferenceTerm>{{spec, 1}});
}

std::shared_ptr<const Loss> preference_loss(std::vector<PreferenceTerm> terms) {
  return std::make_shared<const PreferenceLoss>(std::move(terms));
}

std::shared_ptr<const Loss> target_log_probs() {
  static const auto loss = std::make_shared<const TargetLogProbs>();
  return loss;
}

std::shared_ptr<const Loss> sequence_log_probs(double tail_weight) {
  return std::make_shared<const SequenceLogProbs>(tail_weight);
}

void set_loss(Model& model, const std::shared_ptr<const Loss>& loss) {
  auto* const head = dynamic_cast<Head*>(model.modules.back().get());
  TESSERA_ASSERT(head != nullptr, "a model without a head");
  head->set_loss(loss);
  model.num_metrics = loss->num_metrics();
  model.writes_sequences = loss->writes_sequences();
}

}  // namespace tessera::models
