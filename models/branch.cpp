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
  parts_.branch.forward({.phase = args.phase,
                         .shape = args.shape,
                         .params = args.params,
                         .x = args.x.reshape(rows),
                         .y = args.y.reshape(rows),
                         .saved = saved,
                         .workspace = workspace,
                         .batch = args.batch,
                         .cache = args.cache,
                         .stream = args.stream});
}

void Branch::backward(const BackwardArgs& args) const {
  const Shape rows{args.shape.batch * args.shape.tokens, parts_.channels};
  parts_.branch.backward({.shape = args.shape,
                          .params = args.params,
                          .grads = {args.dparams, args.accumulate},
                          .x = args.x.reshape(rows),
                          .dy = args.dy.reshape(rows),
                          .dx = args.dx.reshape(rows),
                          .saved = args.saved,
                          .workspace = args.workspace,
                          .batch = args.batch,
                          .stream = args.stream});
}

}  // namespace tessera::models
