// SPDX-License-Identifier: Apache-2.0
// Residual: without BatchShape::saves_outputs backward computes the norm's output again, from mean and rstd.
#include "models/residual.hpp"

namespace tessera::models {

Residual::Saved Residual::saved(SavedAllocator& allocator, BatchShape shape, DType dtype) const {
  Saved s;
  const std::int64_t rows = shape.batch * shape.tokens;
  s.norm = norm_.allocate(allocator.kept(), rows, dtype);
  if (shape.saves_outputs) s.normed = allocator.kept().take(dtype, {rows, norm_.channels()});
  s.sublayer = allocator.take(sublayer_->saved_bytes(shape, dtype));
  return s;
}

Residual::Scratch Residual::scratch(ScratchAllocator& allocator, const TensorView& saved_normed, BatchShape shape,
                                    DType dtype, Phase phase) const {
  Scratch s;
  s.normed = shape.saves_outputs ? saved_normed : allocator.take(dtype, {shape.batch * shape.tokens, norm_.channels()});
  const std::size_t mark = allocator.mark();
  s.sublayer = allocator.take_bytes(sublayer_->workspace_bytes(shape, dtype, phase));
  allocator.rewind(mark);
  if (phase == Phase::train) s.norm = allocator.take_bytes(norm_.workspace_bytes(dtype, shape.device));
  return s;
}

SavedBytes Residual::saved_bytes(BatchShape shape, DType dtype) const {
  return saved_bytes_of([&](SavedAllocator& allocator) { (void)saved(allocator, shape, dtype); });
}

std::size_t Residual::workspace_bytes(BatchShape shape, DType dtype, Phase phase) const {
  return bytes_of([&](ScratchAllocator& allocator) { (void)scratch(allocator, {}, shape, dtype, phase); });
}

void Residual::forward(const ForwardArgs& args) const {
  const bool has_statistics = args.recompute && args.kept;
  if (has_statistics && !args.saved && !args.writes_y) return;  // everything is kept
  const DType dtype = args.x.dtype;
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const Saved s = saved(saved_allocator, args.shape, dtype);
  const Scratch w = scratch(allocator, s.normed, args.shape, dtype, args.phase);

  if (has_statistics && args.stage == 0) norm_.recompute(args.params, args.x, w.normed, s.norm, args.stream);
  else if (args.stage == 0)
    norm_.forward(args.params, args.x, w.normed, args.phase == Phase::train ? s.norm : Norm::Saved{}, args.stream);
  ForwardArgs inner = args;
  inner.x = w.normed;
  inner.saved = s.sublayer.saved;
  inner.kept = s.sublayer.kept;
  inner.workspace = w.sublayer;
  sublayer_->forward(inner, /*residual=*/args.x);
}

void Residual::backward(const BackwardArgs& args) const {
  const Wanted wanted = args.wanted();
  const bool through_norm = wanted.dx() || norm_.has_wanted(wanted);
  if (!through_norm && !sublayer_->has_wanted(wanted)) return;
  const DType dtype = args.x.dtype;
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const Saved s = saved(saved_allocator, args.shape, dtype);
  const Scratch w = scratch(allocator, s.normed, args.shape, dtype, Phase::train);

  if (args.stage == 0 && !args.shape.saves_outputs && sublayer_->backward_reads_input(wanted))
    norm_.recompute(args.params, args.x, w.normed, s.norm, args.stream);
  BackwardArgs inner = args;
  inner.x = w.normed;
  inner.dx = through_norm ? w.normed : TensorView{};
  inner.saved = s.sublayer.saved;
  inner.kept = s.sublayer.kept;
  inner.workspace = w.sublayer;
  sublayer_->backward(inner);
  if (!through_norm || args.stage > 0) return;
  if (args.dx && args.dx.data != args.dy.data) copy(args.dy, args.dx, args.stream);
  norm_.backward({.params = args.params,
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
