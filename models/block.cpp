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
  return bytes_of([&](ScratchAllocator& allocator) { (void)saved(allocator, shape, dtype, Phase::train); });
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

  ForwardArgs attention = args;
  attention.x = args.x.reshape(rows);
  attention.y = s.middle;
  attention.saved = s.attention;
  attention.workspace = workspace;
  parts_.attention.forward(attention);
  ForwardArgs mlp = args;
  mlp.x = s.middle;
  mlp.y = args.y.reshape(rows);
  mlp.saved = s.mlp;
  mlp.workspace = workspace;
  parts_.mlp.forward(mlp);
}

void Block::backward(const BackwardArgs& args) const {
  const Shape rows{args.shape.batch * args.shape.tokens, parts_.channels};
  ScratchAllocator saved_allocator(args.saved), allocator(args.workspace);
  const Saved s = saved(saved_allocator, args.shape, args.x.dtype, Phase::train);
  const TensorView workspace = scratch(allocator, args.shape, args.x.dtype, Phase::train);
  const TensorView dy = args.dy.reshape(rows), dx = reshaped(args.dx, rows);
  // The gradient between the two lies in dx, or, if only attention's parameters need it, in dy.
  const bool through_mlp = dx || parts_.attention.has_wanted(args.wanted());
  const TensorView dmiddle = dx ? dx : through_mlp ? dy : TensorView{};

  BackwardArgs mlp = args;
  mlp.x = s.middle;
  mlp.dy = dy;
  mlp.dx = dmiddle;
  mlp.saved = s.mlp;
  mlp.workspace = workspace;
  parts_.mlp.backward(mlp);
  if (!through_mlp) return;
  BackwardArgs attention = args;
  attention.x = args.x.reshape(rows);
  attention.dy = dmiddle;
  attention.dx = dx;
  attention.saved = s.attention;
  attention.workspace = workspace;
  parts_.attention.backward(attention);
}

double Block::forward_flops(BatchShape shape) const {
  return parts_.attention.forward_flops(shape) + parts_.mlp.forward_flops(shape);
}

double Block::backward_flops(BatchShape shape, const Wanted& wanted) const {
  const bool through_mlp = wanted.dx() || parts_.attention.has_wanted(wanted);
  return parts_.mlp.backward_flops(shape, wanted.with_dx(through_mlp)) + parts_.attention.backward_flops(shape, wanted);
}

}  // namespace tessera::models
