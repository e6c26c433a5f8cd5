// SPDX-License-Identifier: Apache-2.0
// SharedExpert: the MLP adds the residual, and the experts add to what it has written.
#include "models/shared_expert.hpp"

#include <algorithm>

#include "kernels/bias.hpp"

namespace tessera::models {

void SharedExpert::adapt(AdapterMaker& adapters) {
  mlp_->adapt(adapters);
  experts_->adapt(adapters);
}

void SharedExpert::split(const TensorSplit& over) {
  mlp_->split(over);
  experts_->split(over);
}

SharedExpert::Saved SharedExpert::saved(SavedAllocator& allocator, BatchShape shape, DType dtype) const {
  Saved s;
  s.mlp = allocator.take(mlp_->saved_bytes(shape, dtype));
  s.experts = allocator.take(experts_->saved_bytes(shape, dtype));
  return s;
}

SharedExpert::Scratch SharedExpert::scratch(ScratchAllocator& allocator, BatchShape shape, DType dtype,
                                            Phase phase) const {
  Scratch w;
  if (phase == Phase::train) w.dx = allocator.take(dtype, {shape.batch * shape.tokens, channels_});
  w.part = allocator.take_bytes(
      std::max(mlp_->workspace_bytes(shape, dtype, phase), experts_->workspace_bytes(shape, dtype, phase)));
  return w;
}

SavedBytes SharedExpert::saved_bytes(BatchShape shape, DType dtype) const {
  return saved_bytes_of([&](SavedAllocator& allocator) { (void)saved(allocator, shape, dtype); });
}

std::size_t SharedExpert::workspace_bytes(BatchShape shape, DType dtype, Phase phase) const {
  return bytes_of([&](ScratchAllocator& allocator) { (void)scratch(allocator, shape, dtype, phase); });
}

void SharedExpert::forward(const ForwardArgs& args, const TensorView& residual) const {
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const Saved s = saved(saved_allocator, args.shape, args.x.dtype);
  ForwardArgs part = args;
  part.workspace = scratch(allocator, args.shape, args.x.dtype, args.phase).part;
  part.saved = s.mlp.saved;
  part.kept = s.mlp.kept;
  mlp_->forward(part, residual);
  part.saved = s.experts.saved;
  part.kept = s.experts.kept;
  experts_->forward(part, /*residual=*/args.y);
}

void SharedExpert::backward(const BackwardArgs& args) const {
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const Saved s = saved(saved_allocator, args.shape, args.x.dtype);
  const Scratch w = scratch(allocator, args.shape, args.x.dtype, Phase::train);
  BackwardArgs part = args;
  part.workspace = w.part;
  part.saved = s.mlp.saved;
  part.kept = s.mlp.kept;
  if (args.dx) part.dx = w.dx;  // dx may be x, which the experts read
  mlp_->backward(part);
  part.saved = s.experts.saved;
  part.kept = s.experts.kept;
  part.dx = args.dx;
  experts_->backward(part);
  if (args.dx) kernels::add({.x = w.dx, .y = args.dx}, args.stream);
}

bool SharedExpert::has_wanted(const Wanted& wanted) const {
  return mlp_->has_wanted(wanted) || experts_->has_wanted(wanted);
}

bool SharedExpert::backward_reads_input(const Wanted& wanted) const {
  return mlp_->backward_reads_input(wanted) || experts_->backward_reads_input(wanted);
}

double SharedExpert::recompute_flops(BatchShape shape, const RecomputeTask& what) const {
  return mlp_->recompute_flops(shape, what) + experts_->recompute_flops(shape, what);
}

double SharedExpert::backward_flops(BatchShape shape, const Wanted& wanted) const {
  return mlp_->backward_flops(shape, wanted) + experts_->backward_flops(shape, wanted);
}

}  // namespace tessera::models
