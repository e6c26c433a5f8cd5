// SPDX-License-Identifier: Apache-2.0
// SwigluMlp: saves gate and up; without BatchShape::saves_outputs backward computes silu(gate)·up again. It writes the
// gradients of gate and up over them.
#include "models/swiglu.hpp"

#include "models/tensor_split.hpp"

namespace tessera::models {

SwigluMlp::SwigluMlp(const SwigluMlpSpec& spec, ParamList& params)
    : gate_up_(spec.gate_up, params), down_(spec.down, params), activation_(spec.activation) {
  TESSERA_ASSERT(gate_up_.out() == 2 * down_.in());
}

void SwigluMlp::split(const TensorSplit& over) {
  (void)over.part(down_.in(), "numbers of an MLP's intermediate_size");
  gate_up_.split_outputs(over, {down_.in(), down_.in()});
  down_.split_inputs(over);
}

SwigluMlp::Saved SwigluMlp::saved(SavedAllocator& allocator, BatchShape shape, DType dtype) const {
  Saved s{.gate_up = take_gate_up(allocator.kept(), shape, dtype), .product = {}};
  if (shape.saves_outputs) s.product = take_hidden(allocator.kept(), shape, dtype);
  return s;
}

SavedBytes SwigluMlp::saved_bytes(BatchShape shape, DType dtype) const {
  return saved_bytes_of([&](SavedAllocator& allocator) { (void)saved(allocator, shape, dtype); });
}

std::size_t SwigluMlp::workspace_bytes(BatchShape shape, DType dtype, Phase phase) const {
  ScratchAllocator allocator;
  (void)take_lora(allocator, shape, dtype);
  // Outside training the product is in the columns of gate.
  if (phase == Phase::train && !shape.saves_outputs) (void)take_hidden(allocator, shape, dtype);
  return allocator.bytes();
}

void SwigluMlp::forward(const ForwardArgs& args, const TensorView& residual) const {
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const Saved s = saved(saved_allocator, args.shape, args.x.dtype);
  const LinearContext context = linear_context(take_lora(allocator, args.shape, args.x.dtype), args.batch, args.phase);
  const bool in_place = args.phase != Phase::train;
  const TensorView gate_up = s.gate_up;
  const TensorView product = in_place    ? gate(gate_up)
                             : s.product ? s.product
                                         : take_hidden(allocator, args.shape, args.x.dtype);
  const std::int64_t stride = in_place ? gate_up_.out() : 0;  // of product

  if (!args.recompute || !args.kept)
    gate_up_.forward({.params = args.params, .x = args.x, .y = gate_up, .context = context, .stream = args.stream});
  if (!args.writes_y) return;
  kernels::swiglu_forward({.gate = gate(gate_up),
                           .up = up(gate_up),
                           .y = product,
                           .stride = gate_up_.out(),
                           .stride_y = stride,
                           .activation = activation_},
                          args.stream);
  down_.forward({.params = args.params,
                 .x = product,
                 .x_stride = stride,
                 .y = args.y,
                 .addend = residual,
                 .context = context,
                 .stream = args.stream});
}

void SwigluMlp::backward(const BackwardArgs& args) const {
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const Saved s = saved(saved_allocator, args.shape, args.x.dtype);
  const LinearContext context =
      linear_context(take_lora(allocator, args.shape, args.x.dtype), args.batch, Phase::train);
  const TensorView gate_up = s.gate_up;
  const TensorView product = s.product ? s.product : take_hidden(allocator, args.shape, args.x.dtype);
  const TensorView dproduct = product;

  const Wanted wanted = args.wanted();
  const bool through = through_product(wanted);
  const std::int64_t stride = gate_up_.out();

  if (!s.product && down_.weight_wanted(wanted))
    kernels::swiglu_forward(
        {.gate = gate(gate_up), .up = up(gate_up), .y = product, .stride = stride, .activation = activation_},
        args.stream);
  down_.backward({.params = args.params,
                  .grads = args.grads(),
                  .x = product,
                  .dy = args.dy,
                  .dx = through ? dproduct : TensorView{},
                  .context = context,
                  .stream = args.stream});
  if (!through) return;
  kernels::swiglu_backward({.gate = gate(gate_up),
                            .up = up(gate_up),
                            .dy = dproduct,
                            .dgate = gate(gate_up),  // over the saved values, which nothing reads after
                            .dup = up(gate_up),
                            .stride = stride,
                            .activation = activation_},
                           args.stream);
  gate_up_.backward({.params = args.params,
                     .grads = args.grads(),
                     .x = args.x,
                     .dy = gate_up,
                     .dx = args.dx,
                     .context = context,
                     .stream = args.stream});
}

double SwigluMlp::recompute_flops(BatchShape shape, const RecomputeTask& what) const {
  return static_cast<double>(shape.batch * shape.tokens) *
         ((what.keeps ? 0.0 : gate_up_.flops_per_row()) + (what.writes_y ? down_.flops_per_row() : 0.0));
}

bool SwigluMlp::has_wanted(const Wanted& wanted) const {
  return through_product(wanted.with_dx(false)) || down_.has_wanted(wanted);
}

bool SwigluMlp::backward_reads_input(const Wanted& wanted) const { return gate_up_.weight_wanted(wanted); }

double SwigluMlp::backward_flops(BatchShape shape, const Wanted& wanted) const {
  return static_cast<double>(shape.batch * shape.tokens) *
         (gate_up_.backward_flops_per_row(wanted) +
          down_.backward_flops_per_row(wanted.with_dx(through_product(wanted))));
}

}  // namespace tessera::models
