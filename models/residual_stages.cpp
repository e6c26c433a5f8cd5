// SPDX-License-Identifier: Apache-2.0
// Residual where ranks have parts of the sublayer's matrices (Megatron-LM's tensor parallelism, with tokens divided
// between sublayers: Korthikanti et al. 2022).
#include "kernels/bias.hpp"
#include "models/residual.hpp"
#include "models/tensor_split.hpp"
#include "models/tensor_stages.hpp"

namespace tessera::models {

void Residual::split(const TensorSplit& over) {
  sublayer_->split(over);
  tensor_ranks_ = over.ranks();
}

ModuleStages Residual::stages() const {
  if (!is_split()) return sublayer_->stages();
  constexpr auto gather = ExchangeKind::all_gather, scatter = ExchangeKind::reduce_scatter;
  ModuleStages inner = sublayer_->stages();
  if (inner.stages.empty()) inner.stages.emplace_back();
  ModuleStages all{.values = {{"normed", false}, {"all normed", true}, {"partial sum", false}, {"sum", false}},
                   .stages = {{{}, {0}}},
                   .exchanges = {{{0, 0, 1, gather, scatter}, RankGroup::tensor}}};
  all.values.insert(all.values.end(), inner.values.begin(), inner.values.end());
  for (ModuleStage stage : inner.stages) {
    for (std::vector<int>* list : {&stage.reads, &stage.writes})
      for (int& value : *list) value += own_values;
    all.stages.push_back(std::move(stage));
  }
  all.stages[1].reads.push_back(1);
  all.stages.back().writes.push_back(2);
  all.stages.push_back({{3}, {}});
  for (ModuleStages::Exchange exchange : inner.exchanges) {
    ++exchange.after;
    exchange.from += own_values;
    exchange.to += own_values;
    all.exchanges.push_back(exchange);
  }
  all.exchanges.push_back({{inner_stages_, 2, 3, scatter, gather}, RankGroup::tensor});
  return all;
}

std::size_t Residual::value_bytes(int value, BatchShape shape, DType dtype) const {
  if (!is_split()) return sublayer_->value_bytes(value, shape, dtype);
  if (value >= own_values) return sublayer_->value_bytes(value - own_values, all_tokens(shape), dtype);
  const std::int64_t tokens = value == 1 || value == 2 ? all_tokens(shape).tokens : shape.tokens;
  return static_cast<std::size_t>(shape.batch * tokens * channels()) * (value == 3 ? sizeof(float) : size_of(dtype));
}

std::size_t Residual::value_gradient_bytes(int value, BatchShape shape, DType dtype) const {
  if (!is_split()) return sublayer_->value_gradient_bytes(value, shape, dtype);
  if (value >= own_values) return sublayer_->value_gradient_bytes(value - own_values, all_tokens(shape), dtype);
  return value_bytes(own_values - 1 - value, shape, dtype);  // the same exchanges backward
}

void Residual::forward_stage(const ForwardArgs& args) const {
  const DType dtype = args.x.dtype;
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const Saved s = saved(saved_allocator, args.shape, dtype);
  const Scratch w = scratch(allocator, {}, args.shape, dtype, args.phase);
  const bool has_statistics = args.recompute && args.kept;
  if (args.stage == 0) {
    const TensorView normed = as_rows(args.values[0], dtype, args.x.shape);
    if (!norm_) return copy(args.x, normed, args.stream);
    if (has_statistics) return norm_->recompute(args.params, args.x, normed, s.norm, args.stream);
    return norm_->forward(args.params, args.x, normed, args.phase == Phase::train ? s.norm : Norm::Saved{},
                          args.stream);
  }
  if (args.stage <= inner_stages_) {
    ForwardArgs inner = args;
    inner.shape = all_tokens(args.shape);
    const Shape rows{inner.shape.batch * inner.shape.tokens, channels()};
    const Batch batch = whole_rows(args.batch, args.shape);
    inner.x = as_rows(args.values[1], dtype, rows);
    inner.y = as_rows(args.values[2], dtype, rows);
    inner.saved = s.sublayer.saved;
    inner.kept = s.sublayer.kept;
    inner.workspace = w.sublayer;
    inner.batch = &batch;
    inner.stage = args.stage - 1;
    inner.values = args.values.subspan(own_values);
    if (post_) inner.writes_y = !has_statistics;  // it is kept
    return sublayer_->forward(inner, /*residual=*/{});
  }
  TensorView output = as_rows(args.values[3], DType::f32, args.x.shape);
  if (!args.writes_y && (has_statistics || !post_)) return;
  if (!post_) output = rounded(output, w.normed, args.stream);
  else if (has_statistics) post_->recompute(args.params, s.inner, w.normed, s.post, args.stream);
  else {
    if (dtype == DType::f32) copy(output, s.inner, args.stream);
    else (void)rounded(output, s.inner, args.stream);
    post_->forward(args.params, s.inner, w.normed, args.phase == Phase::train ? s.post : Norm::Saved{}, args.stream);
  }
  if (post_) output = w.normed;
  if (!args.writes_y) return;
  if (args.y.data != args.x.data) copy(args.x, args.y, args.stream);
  kernels::add({.x = output, .y = args.y}, args.stream);
}

void Residual::backward_stage(const BackwardArgs& args) const {
  const DType dtype = args.x.dtype;
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const Saved s = saved(saved_allocator, args.shape, dtype);
  Scratch w = scratch(allocator, {}, args.shape, dtype, Phase::train);
  if (args.stage > inner_stages_) {
    const TensorView dsum = as_rows(args.value_gradients[3], dtype, args.dy.shape);
    if (!post_) return copy(args.dy, dsum, args.stream);
    return post_->backward({.params = args.params,
                            .grads = args.grads(),
                            .x = s.inner,
                            .dy = args.dy,
                            .dx = dsum,
                            .saved = s.post,
                            .workspace = w.norm,
                            .stream = args.stream});
  }
  if (args.stage > 0) {
    BackwardArgs inner = args;
    inner.shape = all_tokens(args.shape);
    const Shape rows{inner.shape.batch * inner.shape.tokens, channels()};
    const Batch batch = whole_rows(args.batch, args.shape);
    inner.x = as_rows(args.values[1], dtype, rows);
    inner.dy = as_rows(args.value_gradients[2], dtype, rows);
    inner.dx = as_rows(args.value_gradients[1], dtype, rows);
    inner.saved = s.sublayer.saved;
    inner.kept = s.sublayer.kept;
    inner.workspace = w.sublayer;
    inner.batch = &batch;
    inner.stage = args.stage - 1;
    inner.values = args.values.subspan(own_values);
    inner.value_gradients = args.value_gradients.subspan(own_values);
    return sublayer_->backward(inner);
  }
  if (!args.dx && !norm_wanted(args.wanted())) return;
  w.normed = rounded(as_rows(args.value_gradients[0], DType::f32, args.x.shape), w.normed, args.stream);
  add_input_gradient(args, s, w);
}

}  // namespace tessera::models
