// SPDX-License-Identifier: Apache-2.0
// Mlp: saves what the activation reads; without BatchShape::saves_outputs backward computes its output again. It writes
// the gradient of that output over it, and the gradients of gate and up over them.
#include "models/mlp.hpp"

#include "kernels/gelu.hpp"
#include "models/tensor_split.hpp"

namespace tessera::models {

Mlp::Mlp(const MlpSpec& spec, ParamList& params) : up_(spec.up, params), down_(spec.down, params), gate_(spec.gate) {
  TESSERA_ASSERT(up_.out() == (gate_ ? 2 : 1) * down_.in());
}

void Mlp::split(const TensorSplit& over) {
  (void)over.part(down_.in(), "numbers of an MLP's intermediate_size");
  up_.split_outputs(over, gate_ ? std::vector<std::int64_t>{down_.in(), down_.in()} : std::vector<std::int64_t>());
  down_.split_inputs(over);
}

Mlp::Saved Mlp::saved(SavedAllocator& allocator, BatchShape shape, DType dtype) const {
  Saved s{.hidden = allocator.kept().take(dtype, {shape.batch * shape.tokens, up_.out()}), .product = {}};
  if (shape.saves_outputs) s.product = take_product(allocator.kept(), shape, dtype);
  return s;
}

SavedBytes Mlp::saved_bytes(BatchShape shape, DType dtype) const {
  return saved_bytes_of([&](SavedAllocator& allocator) { (void)saved(allocator, shape, dtype); });
}

std::size_t Mlp::workspace_bytes(BatchShape shape, DType dtype, Phase phase) const {
  ScratchAllocator allocator;
  (void)take_lora(allocator, shape, dtype);
  // Outside training the product is in the first columns of what the activation reads.
  if (phase == Phase::train && !shape.saves_outputs) (void)take_product(allocator, shape, dtype);
  return allocator.bytes();
}

void Mlp::activate(const TensorView& hidden, const TensorView& product, std::int64_t stride, StreamView stream) const {
  if (!gate_) return kernels::gelu_forward({.x = hidden, .y = product}, stream);
  kernels::swiglu_forward({.gate = gate(hidden),
                           .up = up(hidden),
                           .y = product,
                           .stride = up_.out(),
                           .stride_y = stride,
                           .activation = *gate_},
                          stream);
}

void Mlp::forward(const ForwardArgs& args, const TensorView& residual) const {
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const Saved s = saved(saved_allocator, args.shape, args.x.dtype);
  const LinearContext context = linear_context(take_lora(allocator, args.shape, args.x.dtype), args.batch, args.phase);
  const bool in_place = args.phase != Phase::train;
  const TensorView product = in_place    ? columns(s.hidden, 0, down_.in())
                             : s.product ? s.product
                                         : take_product(allocator, args.shape, args.x.dtype);
  const std::int64_t stride = in_place ? up_.out() : 0;  // of product

  if (!args.recompute || !args.kept)
    up_.forward({.params = args.params, .x = args.x, .y = s.hidden, .context = context, .stream = args.stream});
  if (!args.writes_y) return;
  activate(s.hidden, product, stride, args.stream);
  down_.forward({.params = args.params,
                 .x = product,
                 .x_stride = stride,
                 .y = args.y,
                 .addend = residual,
                 .context = context,
                 .stream = args.stream});
}

void Mlp::backward(const BackwardArgs& args) const {
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const Saved s = saved(saved_allocator, args.shape, args.x.dtype);
  const LinearContext context =
      linear_context(take_lora(allocator, args.shape, args.x.dtype), args.batch, Phase::train);
  const TensorView product = s.product ? s.product : take_product(allocator, args.shape, args.x.dtype),
                   dproduct = product, dhidden = gate_ ? s.hidden : dproduct;

  const Wanted wanted = args.wanted();
  const bool through = through_product(wanted);

  if (!s.product && down_.weight_wanted(wanted)) activate(s.hidden, product, /*stride=*/0, args.stream);
  down_.backward({.params = args.params,
                  .grads = args.grads(),
                  .x = product,
                  .dy = args.dy,
                  .dx = through ? dproduct : TensorView{},
                  .context = context,
                  .stream = args.stream});
  if (!through) return;
  if (!gate_) kernels::gelu_backward({.x = s.hidden, .dy = dproduct, .dx = dhidden}, args.stream);
  else
    kernels::swiglu_backward({.gate = gate(s.hidden),
                              .up = up(s.hidden),
                              .dy = dproduct,
                              .dgate = gate(dhidden),  // over the saved values, which nothing reads after
                              .dup = up(dhidden),
                              .stride = up_.out(),
                              .activation = *gate_},
                             args.stream);
  up_.backward({.params = args.params,
                .grads = args.grads(),
                .x = args.x,
                .dy = dhidden,
                .dx = args.dx,
                .context = context,
                .stream = args.stream});
}

double Mlp::recompute_flops(BatchShape shape, const RecomputeTask& what) const {
  return static_cast<double>(shape.batch * shape.tokens) *
         ((what.keeps ? 0.0 : up_.flops_per_row()) + (what.writes_y ? down_.flops_per_row() : 0.0));
}

bool Mlp::has_wanted(const Wanted& wanted) const {
  return through_product(wanted.with_dx(false)) || down_.has_wanted(wanted);
}

bool Mlp::backward_reads_input(const Wanted& wanted) const { return up_.weight_wanted(wanted); }

double Mlp::backward_flops(BatchShape shape, const Wanted& wanted) const {
  return static_cast<double>(shape.batch * shape.tokens) *
         (up_.backward_flops_per_row(wanted) + down_.backward_flops_per_row(wanted.with_dx(through_product(wanted))));
}

}  // namespace tessera::models
