// SPDX-License-Identifier: Apache-2.0
// Residual: without BatchShape::saves_outputs backward computes the norm's output again, from mean and rstd.
#include "models/residual.hpp"

#include <algorithm>

#include "kernels/bias.hpp"

namespace tessera::models {

Residual::Saved Residual::saved(SavedAllocator& allocator, BatchShape shape, DType dtype) const {
  Saved s;
  const std::int64_t rows = shape.batch * shape.tokens;
  if (norm_) {
    s.norm = norm_->allocate(allocator.kept(), rows, dtype);
    if (shape.saves_outputs && !is_split()) s.normed = allocator.kept().take(dtype, {rows, norm_->channels()});
  }
  if (post_) {
    s.post = post_->allocate(allocator.kept(), rows, dtype);
    s.inner = allocator.kept().take(dtype, {rows, post_->channels()});
  }
  s.sublayer = allocator.take(sublayer_->saved_bytes(all_tokens(shape), dtype));
  return s;
}

Residual::Scratch Residual::scratch(ScratchAllocator& allocator, const TensorView& saved_normed, BatchShape shape,
                                    DType dtype, Phase phase) const {
  Scratch s;
  const Shape rows{shape.batch * shape.tokens, channels()};
  const bool in_saved = norm_ && shape.saves_outputs;
  if (is_split()) s.normed = dtype == DType::f32 && !post_ ? TensorView{} : allocator.take(dtype, rows);
  else if (in_saved) s.normed = saved_normed;
  else if (norm_ || phase == Phase::train) s.normed = allocator.take(dtype, rows);
  if (post_ && phase == Phase::train && !is_split()) s.dinner = allocator.take(dtype, rows);
  const std::size_t mark = allocator.mark();
  s.sublayer = allocator.take_bytes(sublayer_->workspace_bytes(all_tokens(shape), dtype, phase));
  allocator.rewind(mark);
  if (phase == Phase::train)
    s.norm = allocator.take_bytes(std::max(norm_ ? norm_->workspace_bytes(dtype, shape.device) : 0,
                                           post_ ? post_->workspace_bytes(dtype, shape.device) : 0));
  return s;
}

std::string Residual::context_refusal(ContextShare share) const { return sublayer_->context_refusal(share); }

void Residual::set_context(ContextShare share) {
  sublayer_->set_context(share);
  const ModuleStages inner = sublayer_->stages();
  inner_stages_ = std::max(1, static_cast<int>(inner.stages.size()));
  inner_values_ = static_cast<int>(inner.values.size());
}

SavedBytes Residual::saved_bytes(BatchShape shape, DType dtype) const {
  return saved_bytes_of([&](SavedAllocator& allocator) { (void)saved(allocator, shape, dtype); });
}

std::size_t Residual::workspace_bytes(BatchShape shape, DType dtype, Phase phase) const {
  return bytes_of([&](ScratchAllocator& allocator) { (void)scratch(allocator, {}, shape, dtype, phase); });
}

void Residual::forward(const ForwardArgs& args) const {
  if (is_split()) return forward_stage(args);
  const bool has_statistics = args.recompute && args.kept;
  if (has_statistics && !args.saved && !args.writes_y) return;  // everything is kept
  const DType dtype = args.x.dtype;
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const Saved s = saved(saved_allocator, args.shape, dtype);
  const Scratch w = scratch(allocator, s.normed, args.shape, dtype, args.phase);
  const auto normalize = [&](const Norm& norm, const TensorView& x, const TensorView& y,
                             const Norm::Saved& statistics) {
    if (has_statistics) norm.recompute(args.params, x, y, statistics, args.stream);
    else norm.forward(args.params, x, y, args.phase == Phase::train ? statistics : Norm::Saved{}, args.stream);
  };

  if (norm_ && args.stage == 0) normalize(*norm_, args.x, w.normed, s.norm);
  ForwardArgs inner = args;
  if (norm_) inner.x = w.normed;
  inner.saved = s.sublayer.saved;
  inner.kept = s.sublayer.kept;
  inner.workspace = w.sublayer;
  if (!post_) return sublayer_->forward(inner, /*residual=*/args.x);
  inner.y = s.inner;
  inner.writes_y = !has_statistics;  // it is kept
  sublayer_->forward(inner, /*residual=*/{});
  if (!is_last(args.stage) || (!args.writes_y && has_statistics)) return;
  normalize(*post_, s.inner, args.writes_y ? args.y : w.dinner, s.post);  // without y for its statistics
  if (args.writes_y) kernels::add({.x = args.x, .y = args.y}, args.stream);
}

void Residual::backward(const BackwardArgs& args) const {
  if (is_split()) return backward_stage(args);
  const Wanted wanted = args.wanted();
  const bool through_input = wanted.dx() || norm_wanted(wanted);
  const bool through_sublayer = through_input || sublayer_->has_wanted(wanted);
  if (!through_sublayer && !(post_ && post_->has_wanted(wanted))) return;
  const DType dtype = args.x.dtype;
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const Saved s = saved(saved_allocator, args.shape, dtype);
  const Scratch w = scratch(allocator, s.normed, args.shape, dtype, Phase::train);

  if (post_ && is_last(args.stage))
    post_->backward({.params = args.params,
                     .grads = args.grads(),
                     .x = s.inner,
                     .dy = args.dy,
                     .dx = through_sublayer ? w.dinner : TensorView{},
                     .saved = s.post,
                     .workspace = w.norm,
                     .stream = args.stream});
  if (!through_sublayer) return;
  if (norm_ && args.stage == 0 && !args.shape.saves_outputs && sublayer_->backward_reads_input(wanted))
    norm_->recompute(args.params, args.x, w.normed, s.norm, args.stream);
  BackwardArgs inner = args;
  if (norm_) inner.x = w.normed;
  if (post_) inner.dy = w.dinner;
  inner.dx = through_input ? w.normed : TensorView{};
  inner.saved = s.sublayer.saved;
  inner.kept = s.sublayer.kept;
  inner.workspace = w.sublayer;
  sublayer_->backward(inner);
  if (through_input && args.stage == 0) add_input_gradient(args, s, w);
}

void Residual::add_input_gradient(const BackwardArgs& args, const Saved& s, const Scratch& w) const {
  if (args.dx && args.dx.data != args.dy.data) copy(args.dy, args.dx, args.stream);
  if (!norm_) return kernels::add({.x = w.normed, .y = args.dx}, args.stream);
  norm_->backward({.params = args.params,
                   .grads = args.grads(),
                   .x = args.x,
                   .dy = w.normed,
                   .dx = args.dx,
                   .write = Write::add,
                   .saved = s.norm,
                   .workspace = w.norm,
                   .stream = args.stream});
}

}  // namespace tessera::models
