// SPDX-License-Identifier: Apache-2.0
// Head where ranks have parts of the vocabulary (Megatron-LM's vocabulary-parallel cross-entropy). The logits of the
// statistics are not kept: the stage of the gradients computes them again.
#include "models/head.hpp"

#include <algorithm>

#include "kernels/gemm.hpp"
#include "models/linear.hpp"
#include "models/tensor_split.hpp"

namespace tessera::models {

void Head::split(const TensorSplit& over) {
  if (loss_ != cross_entropy() || scores_) TensorSplit::refuse("for losses other than cross-entropy");
  vocabulary_ = over.vocabulary(vocabulary_.vocab);
  over.divide_vocabulary(weight_, 0);
  if (lora_) lora_->split_vocabulary(over);
}

ModuleStages Head::stages(Phase phase) const {
  ModuleStages all = vocabulary_stages();
  if (phase == Phase::train && sums_router()) add_router_exchange(all);
  return all;
}

ModuleStages Head::vocabulary_stages() const {
  if (!vocabulary_.is_split()) return {};
  constexpr auto gather = ExchangeKind::all_gather, scatter = ExchangeKind::reduce_scatter,
                 swap = ExchangeKind::all_to_all;
  return {.values = {{"normed", false}, {"all normed", true}, {"part statistics", false}, {"statistics", true}},
          .stages = {{{}, {0}}, {{1}, {2}}, {{3}, {}}},
          .exchanges = {{{0, 0, 1, gather, scatter}, RankGroup::tensor}, {{1, 2, 3, swap, gather}, RankGroup::tensor}}};
}

std::size_t Head::value_bytes(int value, BatchShape shape, DType dtype) const {
  if (value >= router_value()) return router_bytes(value, shape);
  const std::int64_t own = own_rows(shape), all = all_rows(shape);
  if (value < 2) return static_cast<std::size_t>((value == 0 ? own : all) * channels_) * size_of(dtype);
  if (!shape.whole) return static_cast<std::size_t>(all) * sizeof(kernels::TokenStatistics);
  return static_cast<std::size_t>(own * vocabulary_.largest() * (value == 2 ? 1 : vocabulary_.ranks)) *
         size_of(stat_dtype(dtype));
}

std::size_t Head::value_gradient_bytes(int value, BatchShape shape, DType dtype) const {
  const auto own = static_cast<std::size_t>(own_rows(shape));
  if (value == 0) return own * static_cast<std::size_t>(channels_) * sizeof(float);  // a sum
  if (value == 3) return own * sizeof(kernels::TokenStatistics);
  return value_bytes(value, shape, dtype);
}

std::size_t Head::saved_bytes(BatchShape shape, DType dtype) const {
  if (!vocabulary_.is_split()) return 0;
  return bytes_of([&](ScratchAllocator& allocator) { (void)norm_.allocate(allocator, own_rows(shape), dtype); });
}

Head::StageScratch Head::stage_scratch(ScratchAllocator& allocator, BatchShape shape, DType dtype, Phase phase) const {
  const std::int64_t own = own_rows(shape), all = all_rows(shape);
  StageScratch s;
  if (phase == Phase::logits) {
    if (lora_) s.lora = allocator.take_bytes(lora_->workspace_bytes(own, dtype));
    return s;
  }
  const std::size_t mark = allocator.mark();
  if (lora_) s.low = lora_->half(allocator, all, dtype, phase == Phase::train);
  std::size_t bytes = 0;  // which do not grow with every vocabulary
  for (const int rank : {0, vocabulary_.ranks - 1})
    bytes =
        std::max(bytes, kernels::linear_cross_entropy_workspace(all, vocabulary_.of(rank).length, dtype, shape.device));
  s.loss = allocator.take_bytes(bytes);
  if (phase != Phase::train) return s;
  allocator.rewind(mark);  // of another stage
  if (dtype != DType::f32) s.dnormed = allocator.take(dtype, {own, channels_});
  s.norm = allocator.take_bytes(norm_.workspace_bytes(dtype, shape.device));
  return s;
}

kernels::LinearCrossEntropyArgs Head::part_args(const Batch& batch, std::span<const TensorView> params,
                                                const TensorView& x, const StageScratch& w) const {
  kernels::LinearCrossEntropyArgs args;
  args.x = x;
  args.weight = vocabulary_.own(at(params, weight_), batch.tensor_rank);
  args.targets = batch.targets.reshape({x.shape[0]});
  args.logits = logits_;
  args.workspace = w.loss;
  args.part = {
      .first = vocabulary_.of(batch.tensor_rank).first, .vocab = vocabulary_.vocab, .statistics = {}, .merged = {}};
  return args;
}

/// `count` TokenStatistics.
static TensorView as_statistics(const TensorView& bytes, std::int64_t count) {
  return as_rows(bytes, DType::f64, {count, 4});
}

void Head::forward_stage(const ForwardArgs& args) const {
  const DType dtype = args.x.dtype;
  const std::int64_t own = own_rows(args.shape), all = all_rows(args.shape);
  const bool gives_logits = args.phase == Phase::logits;
  ScratchAllocator allocator(args.workspace), saved(args.saved);
  const StageScratch w = stage_scratch(allocator, args.shape, dtype, args.phase);
  if (args.stage == 0) {
    const TensorView normed = as_rows(args.values[0], dtype, {own, channels_});
    if (gives_logits) return normalize_last(args, normed);
    return norm_.forward(args.params, args.x.reshape({own, channels_}), normed,
                         args.phase == Phase::train ? norm_.allocate(saved, own, dtype) : Norm::Saved{}, args.stream);
  }
  if (gives_logits) return args.stage == 1 ? part_of_logits(args, w) : collect_logits(args);
  if (args.stage == 1) {
    const Batch batch = whole_rows(args.batch, args.shape);
    const TensorView x = as_rows(args.values[1], dtype, {all, channels_});
    kernels::LinearCrossEntropyArgs loss = part_args(batch, args.params, x, w);
    loss.part.statistics = as_statistics(args.values[2], all);
    if (lora_)
      loss.low = lora_->forward_half({.params = args.params,
                                      .grads = {},
                                      .x = x,
                                      .y = {},
                                      .y_stride = 0,
                                      .context = linear_context({}, &batch, args.phase),
                                      .stream = args.stream},
                                     w.low, /*wanted_low=*/false);
    return kernels::linear_cross_entropy(loss, args.stream);
  }
  kernels::merge_token_statistics({.parts = as_rows(args.values[3], DType::f64, {vocabulary_.ranks, own, 4}),
                                   .targets = args.batch->targets.reshape({own}),
                                   .weights = reshaped(args.batch->loss_weights, {own}),
                                   .sums = args.batch->sums,
                                   .loss_scale = nullptr,
                                   .merged = {}},
                                  args.stream);
}

/// The logits of this part, each row as long as those of the largest one.
void Head::part_of_logits(const ForwardArgs& args, const StageScratch& w) const {
  const std::int64_t rows = own_rows(args.shape), stride = vocabulary_.largest();
  const TensorView x = as_rows(args.values[1], args.x.dtype, {rows, channels_});
  const TensorView weight = vocabulary_.own(at(args.params, weight_), args.batch->tensor_rank);
  const TensorView logits = as_rows(args.values[2], stat_dtype(args.x.dtype), {rows, weight.shape[0]});
  kernels::gemm({.a = x, .b = weight, .c = logits, .trans_b = true, .stride_c = stride}, args.stream);
  if (lora_)
    lora_->forward({.params = args.params,
                    .grads = {},
                    .x = x,
                    .y = logits,
                    .y_stride = stride,
                    .context = {.lora = w.lora, .tensor_rank = args.batch->tensor_rank},
                    .stream = args.stream});
}

void Head::collect_logits(const ForwardArgs& args) const {
  const TensorView& logits = args.batch->logits;
  const std::int64_t rows = own_rows(args.shape), stride = vocabulary_.largest();
  const TensorView parts = as_rows(args.values[3], logits.dtype, {vocabulary_.ranks, rows, stride});
  for (int rank = 0; rank < vocabulary_.ranks; ++rank) {
    const ElementRun part = vocabulary_.of(rank);
    copy_columns(columns(parts.rows(rank, 1).reshape({rows, stride}), 0, part.length), stride,
                 columns(logits, part.first, part.length), vocabulary_.vocab, args.stream);
  }
  apply(logits_, logits, args.stream);
}

void Head::backward_stage(const BackwardArgs& args) const {
  const std::int64_t own = own_rows(args.shape);
  if (args.stage == 2)  // what the gradients need of all logits of this rank's tokens
    return kernels::merge_token_statistics({.parts = as_rows(args.values[3], DType::f64, {vocabulary_.ranks, own, 4}),
                                            .targets = args.batch->targets.reshape({own}),
                                            .weights = reshaped(args.batch->loss_weights, {own}),
                                            .sums = nullptr,
                                            .loss_scale = args.batch->loss_scale,
                                            .merged = as_statistics(args.value_gradients[3], own)},
                                           args.stream);
  if (args.stage == 1) return gradients_of_part(args);
  if (!args.dx && !norm_.has_wanted(args.wanted())) return;
  const DType dtype = args.x.dtype;
  ScratchAllocator allocator(args.workspace), saved(args.saved);
  const StageScratch w = stage_scratch(allocator, args.shape, dtype, Phase::train);
  const Shape rows{own, channels_};
  norm_.backward({.params = args.params,
                  .grads = args.grads(),
                  .x = args.x.reshape(rows),
                  .dy = rounded(as_rows(args.value_gradients[0], DType::f32, rows), w.dnormed, args.stream),
                  .dx = reshaped(args.dx, rows),
                  .saved = norm_.allocate(saved, own, dtype),
                  .workspace = w.norm,
                  .stream = args.stream});
}

void Head::gradients_of_part(const BackwardArgs& args) const {
  const DType dtype = args.x.dtype;
  const std::int64_t all = all_rows(args.shape);
  const Gradients grads = args.grads();
  ScratchAllocator allocator(args.workspace);
  const StageScratch w = stage_scratch(allocator, args.shape, dtype, Phase::train);
  const Batch batch = whole_rows(args.batch, args.shape);
  const TensorView x = as_rows(args.values[1], dtype, {all, channels_});
  const bool through_weight = args.dx || norm_.has_wanted(args.wanted());
  const TensorView dnormed = through_weight ? as_rows(args.value_gradients[1], dtype, {all, channels_}) : TensorView{};
  LoraBranch::Args branch{.params = args.params,
                          .grads = grads,
                          .x = x,
                          .y = {},
                          .y_stride = 0,
                          .context = linear_context({}, &batch, Phase::train),
                          .stream = args.stream};
  kernels::LinearCrossEntropyArgs loss = part_args(batch, args.params, x, w);
  loss.part.merged = as_statistics(args.value_gradients[2], all);
  loss.dx = dnormed;
  loss.accumulate = grads.adds(weight_);
  loss.dweight = vocabulary_.own_gradient(grads[weight_], batch.tensor_rank, loss.accumulate, args.stream);
  const bool through_low = lora_ && (through_weight || lora_->has_wanted(args.wanted()));
  if (lora_) loss.low = lora_->forward_half(branch, w.low, through_low);
  kernels::linear_cross_entropy(loss, args.stream);
  branch.x = dnormed;
  if (through_low) lora_->backward_half(branch, w.low);
}

}  // namespace tessera::models
