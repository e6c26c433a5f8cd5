// Block: memory of the two branches, and their order.
#include "models/block.hpp"

namespace tessera::models {

Block::Saved Block::saved(ScratchAllocator& carver, BatchShape shape, DType dtype, Phase phase) const {
  Saved s;
  s.middle = carver.take(dtype, {shape.batch * shape.tokens, parts_.channels});
  const std::size_t start = carver.mark();
  s.attention = carver.take_bytes(parts_.attention.saved_bytes(shape, dtype));
  const std::size_t behind = carver.mark();
  if (phase != Phase::train) carver.rewind(start);
  s.mlp = carver.take_bytes(parts_.mlp.saved_bytes(shape, dtype));
  carver.rewind(std::max(behind, carver.mark()));
  return s;
}

TensorView Block::scratch(ScratchAllocator& carver, BatchShape shape, DType dtype, Phase phase) const {
  return carver.take_bytes(std::max(parts_.attention.workspace_bytes(shape, parts_.channels, dtype, phase),
                                    parts_.mlp.workspace_bytes(shape, parts_.channels, dtype, phase)));
}

std::size_t Block::saved_bytes(BatchShape shape, DType dtype) const {
  ScratchAllocator carver;
  (void)saved(carver, shape, dtype, Phase::train);
  return carver.bytes();
}

std::size_t Block::workspace_bytes(BatchShape shape, DType dtype, Phase phase) const {
  ScratchAllocator carver;
  if (phase != Phase::train) (void)saved(carver, shape, dtype, phase);
  (void)scratch(carver, shape, dtype, phase);
  return carver.bytes();
}

void Block::forward(const ForwardArgs& args) const {
  const DType dtype = args.x.dtype;
  const Shape rows{args.shape.batch * args.shape.tokens, parts_.channels};
  ScratchAllocator carver(args.workspace);
  Saved s;
  if (args.phase == Phase::train) {
    ScratchAllocator saved_carver(args.saved);
    s = saved(saved_carver, args.shape, dtype, args.phase);
  } else {
    s = saved(carver, args.shape, dtype, args.phase);
  }
  const TensorView workspace = scratch(carver, args.shape, dtype, args.phase);

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
  ScratchAllocator saved_carver(args.saved), carver(args.workspace);
  const Saved s = saved(saved_carver, args.shape, args.x.dtype, Phase::train);
  const TensorView workspace = scratch(carver, args.shape, args.x.dtype, Phase::train);
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
