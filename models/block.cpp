// Block: memory and order of its two branches.
#include "models/block.hpp"

namespace tessera::models {

Block::Saved Block::saved(ScratchAllocator& allocator, BatchShape shape, DType dtype, Phase phase) const {
  Saved s;
  s.middle = allocator.take(dtype, {shape.batch * shape.tokens, parts_.channels});
  const std::size_t start = allocator.mark();
  s.attention = allocator.take_bytes(parts_.attention.saved_bytes(shape, dtype));
  const std::size_t behind = allocator.mark();
  if (phase != Phase::train) allocator.rewind(start);
  s.mlp = allocator.take_bytes(parts_.mlp.saved_bytes(shape, dtype));
  allocator.rewind(std::max(behind, allocator.mark()));
  return s;
}

TensorView Block::scratch(ScratchAllocator& allocator, BatchShape shape, DType dtype, Phase phase) const {
  return allocator.take_bytes(std::max(parts_.attention.workspace_bytes(shape, parts_.channels, dtype, phase),
                                       parts_.mlp.workspace_bytes(shape, parts_.channels, dtype, phase)));
}

std::size_t Block::saved_bytes(BatchShape shape, DType dtype) const {
  ScratchAllocator allocator;
  (void)saved(allocator, shape, dtype, Phase::train);
  return allocator.bytes();
}

std::size_t Block::workspace_bytes(BatchShape shape, DType dtype, Phase phase) const {
  ScratchAllocator allocator;
  if (phase != Phase::train) (void)saved(allocator, shape, dtype, phase);
  (void)scratch(allocator, shape, dtype, phase);
  return allocator.bytes();
}

void Block::forward(const ForwardArgs& args) const {
  const DType dtype = args.x.dtype;
  const Shape rows{args.shape.batch * args.shape.tokens, parts_.channels};
  ScratchAllocator allocator(args.workspace);
  Saved s;
  if (args.phase == Phase::train) {
    ScratchAllocator saved_allocator(args.saved);
    s = saved(saved_allocator, args.shape, dtype, args.phase);
  } else {
    s = saved(allocator, args.shape, dtype, args.phase);
  }
  const TensorView workspace = scratch(allocator, args.shape, dtype, args.phase);

  parts_.attention.forward({.phase = args.phase,
                            .shape = args.shape,
                            .params = args.params,
                            .x = args.x.reshape(rows),
                            .y = s.middle,
                            .saved = s.attention,
                            .workspace = workspace,
                            .batch = args.batch,
                            .cache = args.cache,
                            .stream = args.stream});
  parts_.mlp.forward({.phase = args.phase,
                      .shape = args.shape,
                      .params = args.params,
                      .x = s.middle,
                      .y = args.y.reshape(rows),
                      .saved = s.mlp,
                      .workspace = workspace,
                      .batch = args.batch,
                      .stream = args.stream});
}

void Block::backward(const BackwardArgs& args) const {
  const Shape rows{args.shape.batch * args.shape.tokens, parts_.channels};
  ScratchAllocator saved_allocator(args.saved), allocator(args.workspace);
  const Saved s = saved(saved_allocator, args.shape, args.x.dtype, Phase::train);
  const TensorView workspace = scratch(allocator, args.shape, args.x.dtype, Phase::train);
  const Gradients grads{args.dparams, args.accumulate};
  const TensorView dx = args.dx.reshape(rows);

  parts_.mlp.backward({.shape = args.shape,
                       .params = args.params,
                       .grads = grads,
                       .x = s.middle,
                       .dy = args.dy.reshape(rows),
                       .dx = dx,
                       .saved = s.mlp,
                       .workspace = workspace,
                       .batch = args.batch,
                       .stream = args.stream});
  parts_.attention.backward({.shape = args.shape,
                             .params = args.params,
                             .grads = grads,
                             .x = args.x.reshape(rows),
                             .dy = dx,
                             .dx = dx,
                             .saved = s.attention,
                             .workspace = workspace,
                             .batch = args.batch,
                             .stream = args.stream});
}

double Block::forward_flops(BatchShape shape) const {
  return parts_.attention.forward_flops(shape) + parts_.mlp.forward_flops(shape);
}

}  // namespace tessera::models
