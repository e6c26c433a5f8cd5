// Block: memory and order of its branches.
#include "models/block.hpp"

namespace tessera::models {

Block::Block(BlockParts parts) : parts_(std::move(parts)) {
  TESSERA_ASSERT(parts_.residuals.size() == 1 || parts_.residuals.size() == 2);
}

Block::Saved Block::saved(ScratchAllocator& allocator, BatchShape shape, DType dtype, Phase phase) const {
  Saved s;
  if (parts_.residuals.size() > 1) s.middle = allocator.take(dtype, {shape.batch * shape.tokens, parts_.channels});
  const std::size_t start = allocator.mark();
  std::size_t end = start;
  for (std::size_t i = 0; i < parts_.residuals.size(); ++i) {
    if (phase != Phase::train) allocator.rewind(start);
    s.residuals[i] = allocator.take_bytes(parts_.residuals[i].saved_bytes(shape, dtype));
    end = std::max(end, allocator.mark());
  }
  allocator.rewind(end);
  return s;
}

TensorView Block::scratch(ScratchAllocator& allocator, BatchShape shape, DType dtype, Phase phase) const {
  std::size_t bytes = 0;
  for (const Residual& residual : parts_.residuals)
    bytes = std::max(bytes, residual.workspace_bytes(shape, parts_.channels, dtype, phase));
  return allocator.take_bytes(bytes);
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
  const Shape rows{args.shape.batch * args.shape.tokens, parts_.channels};
  ScratchAllocator saved_allocator(args.saved), allocator(args.workspace);
  const Saved s = saved(args.phase == Phase::train ? saved_allocator : allocator, args.shape, args.x.dtype, args.phase);
  ForwardArgs inner = args;
  inner.x = args.x.reshape(rows);
  inner.workspace = scratch(allocator, args.shape, args.x.dtype, args.phase);
  for (std::size_t i = 0; i < parts_.residuals.size(); ++i) {
    inner.y = i + 1 < parts_.residuals.size() ? s.middle : args.y.reshape(rows);
    inner.saved = s.residuals[i];
    parts_.residuals[i].forward(inner);
    inner.x = inner.y;
  }
}

void Block::backward(const BackwardArgs& args) const {
  const Shape rows{args.shape.batch * args.shape.tokens, parts_.channels};
  ScratchAllocator saved_allocator(args.saved), allocator(args.workspace);
  const Saved s = saved(saved_allocator, args.shape, args.x.dtype, Phase::train);
  const Wanted wanted = args.wanted();
  const TensorView dx = reshaped(args.dx, rows);
  BackwardArgs inner = args;
  inner.dy = args.dy.reshape(rows);
  inner.workspace = scratch(allocator, args.shape, args.x.dtype, Phase::train);
  for (std::size_t i = parts_.residuals.size(); i-- > 0 && inner.dy;) {
    inner.x = i > 0 ? s.middle : args.x.reshape(rows);
    // The gradient between the two lies in dx, or, if only the first one's parameters need it, in dy.
    inner.dx = !dx && computes_dx(i, wanted) ? inner.dy : dx;
    inner.saved = s.residuals[i];
    parts_.residuals[i].backward(inner);
    inner.dy = inner.dx;
  }
}

double Block::forward_flops(BatchShape shape) const {
  double flops = 0;
  for (const Residual& residual : parts_.residuals) flops += residual.forward_flops(shape);
  return flops;
}

double Block::backward_flops(BatchShape shape, const Wanted& wanted) const {
  double flops = 0;
  for (std::size_t i = 0; i < parts_.residuals.size(); ++i)
    flops += parts_.residuals[i].backward_flops(shape, wanted.with_dx(computes_dx(i, wanted)));
  return flops;
}

bool Block::computes_dx(std::size_t i, const Wanted& wanted) const {
  return wanted.dx() || (i > 0 && parts_.residuals.front().has_wanted(wanted));
}

}  // namespace tessera::models
