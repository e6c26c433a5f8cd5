// SPDX-License-Identifier: Apache-2.0
// SwigluMlp: saves gate and up; backward recomputes silu(gate)·up.
#include "models/swiglu.hpp"

#include "kernels/swiglu.hpp"

namespace tessera::models {

SwigluMlp::SwigluMlp(const SwigluMlpSpec& spec, ParamList& params)
    : gate_(spec.gate, params), up_(spec.up, params), down_(spec.down, params) {
  TESSERA_ASSERT(gate_.out() == up_.out() && up_.out() == down_.in());
}

SavedBytes SwigluMlp::saved_bytes(BatchShape shape, DType dtype) const {
  SavedAllocator allocator;
  (void)take_hidden(allocator.kept(), shape, dtype);  // gate
  (void)take_hidden(allocator.kept(), shape, dtype);  // up
  return allocator.bytes();
}

std::size_t SwigluMlp::workspace_bytes(BatchShape shape, DType dtype, Phase phase) const {
  ScratchAllocator allocator;
  (void)take_lora(allocator, shape, dtype);
  if (phase != Phase::train) return allocator.bytes();  // the product reuses the memory of gate
  (void)take_hidden(allocator, shape, dtype);           // the product; backward: then the gradient of up
  (void)take_hidden(allocator, shape, dtype);           // backward: the product's gradient, then gate's
  return allocator.bytes();
}

void SwigluMlp::forward(const ForwardArgs& args, const TensorView& residual) const {
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const TensorView gate = take_hidden(saved_allocator.kept(), args.shape, args.x.dtype);
  const TensorView up = take_hidden(saved_allocator.kept(), args.shape, args.x.dtype);
  const LoraContext lora = lora_context(take_lora(allocator, args.shape, args.x.dtype), args.batch, args.phase);
  const TensorView product = args.phase == Phase::train ? take_hidden(allocator, args.shape, args.x.dtype) : gate;

  if (!args.recompute || !args.kept) {
    gate_.forward({.params = args.params, .x = args.x, .y = gate, .lora = lora, .stream = args.stream});
    up_.forward({.params = args.params, .x = args.x, .y = up, .lora = lora, .stream = args.stream});
  }
  if (!args.writes_y) return;
  kernels::swiglu_forward({.gate = gate, .up = up, .y = product}, args.stream);
  down_.forward(
      {.params = args.params, .x = product, .y = args.y, .addend = residual, .lora = lora, .stream = args.stream});
}

void SwigluMlp::backward(const BackwardArgs& args) const {
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const TensorView gate = take_hidden(saved_allocator.kept(), args.shape, args.x.dtype);
  const TensorView up = take_hidden(saved_allocator.kept(), args.shape, args.x.dtype);
  const LoraContext lora = lora_context(take_lora(allocator, args.shape, args.x.dtype), args.batch, Phase::train);
  const TensorView product = take_hidden(allocator, args.shape, args.x.dtype), dup = product;
  const TensorView dproduct = take_hidden(allocator, args.shape, args.x.dtype), dgate = dproduct;

  const Wanted wanted = args.wanted();
  const bool through = through_product(wanted);

  if (down_.weight_wanted(wanted)) kernels::swiglu_forward({.gate = gate, .up = up, .y = product}, args.stream);
  down_.backward({.params = args.params,
                  .grads = args.grads(),
                  .x = product,
                  .dy = args.dy,
                  .dx = through ? dproduct : TensorView{},
                  .lora = lora,
                  .stream = args.stream});
  if (!through) return;
  kernels::swiglu_backward({.gate = gate, .up = up, .dy = dproduct, .dgate = dgate, .dup = dup}, args.stream);
  const auto part = [&](const TensorView& dy, Write write) {
    return Linear::BackwardArgs{.params = args.params,
                                .grads = args.grads(),
                                .x = args.x,
                                .dy = dy,
                                .dx = args.dx,
                                .write = write,
                                .lora = lora,
                                .stream = args.stream};
  };
  gate_.backward_params(part(dgate, Write::overwrite));  // both before dx, which may be x
  up_.backward_params(part(dup, Write::overwrite));
  gate_.backward_input(part(dgate, Write::overwrite));
  up_.backward_input(part(dup, Write::add));
}

double SwigluMlp::recompute_flops(BatchShape shape, const RecomputeTask& what) const {
  const double products = what.keeps ? 0.0 : gate_.flops_per_row() + up_.flops_per_row();
  return static_cast<double>(shape.batch * shape.tokens) * (products + (what.writes_y ? down_.flops_per_row() : 0.0));
}

bool SwigluMlp::has_wanted(const Wanted& wanted) const {
  return through_product(wanted.with_dx(false)) || down_.has_wanted(wanted);
}

bool SwigluMlp::backward_reads_input(const Wanted& wanted) const {
  return gate_.weight_wanted(wanted) || up_.weight_wanted(wanted);
}

double SwigluMlp::backward_flops(BatchShape shape, const Wanted& wanted) const {
  return static_cast<double>(shape.batch * shape.tokens) *
         (gate_.backward_flops_per_row(wanted) + up_.backward_flops_per_row(wanted) +
          down_.backward_flops_per_row(wanted.with_dx(through_product(wanted))));
}

}  // namespace tessera::models
