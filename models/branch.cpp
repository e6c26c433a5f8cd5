// Branch: memory of its branch; outside training what it saves is scratch.
#include "models/branch.hpp"

namespace tessera::models {

std::size_t Branch::workspace_bytes(BatchShape shape, DType dtype, Phase phase) const {
  ScratchAllocator allocator;
  if (phase != Phase::train) (void)allocator.take_bytes(parts_.branch.saved_bytes(shape, dtype));
  (void)allocator.take_bytes(parts_.branch.workspace_bytes(shape, parts_.channels, dtype, phase));
  return allocator.bytes();
}

void Branch::forward(const ForwardArgs& args) const {
  const Shape rows{args.shape.batch * args.shape.tokens, parts_.channels};
  ScratchAllocator allocator(args.workspace);
  const TensorView saved = args.phase == Phase::train
                               ? args.saved
                               : allocator.take_bytes(parts_.branch.saved_bytes(args.shape, args.x.dtype));
  const TensorView workspace =
      allocator.take_bytes(parts_.branch.workspace_bytes(args.shape, parts_.channels, args.x.dtype, args.phase));
  ForwardArgs inner = args;
  inner.x = args.x.reshape(rows);
  inner.y = args.y.reshape(rows);
  inner.saved = saved;
  inner.workspace = workspace;
  parts_.branch.forward(inner);
}

void Branch::backward(const BackwardArgs& args) const {
  const Shape rows{args.shape.batch * args.shape.tokens, parts_.channels};
  BackwardArgs inner = args;
  inner.x = args.x.reshape(rows);
  inner.dy = args.dy.reshape(rows);
  inner.dx = reshaped(args.dx, rows);
  parts_.branch.backward(inner);
}

}  // namespace tessera::models
