// SPDX-License-Identifier: Apache-2.0
// GeluMlp: saves the input of GELU; without BatchShape::saves_outputs backward computes its output again.
#include "models/mlp.hpp"

#include "kernels/gelu.hpp"
#include "models/tensor_split.hpp"

namespace tessera::models {

GeluMlp::GeluMlp(const GeluMlpSpec& spec, ParamList& params) : up_(spec.up, params), down_(spec.down, params) {
  TESSERA_ASSERT(up_.out() == down_.in());
}

void GeluMlp::split(const TensorSplit& over) {
  (void)over.part(down_.in(), "numbers of an MLP's intermediate_size");
  up_.split_outputs(over);
  down_.split_inputs(over);
}

GeluMlp::Saved GeluMlp::saved(SavedAllocator& allocator, BatchShape shape, DType dtype) const {
  Saved s{.before = take_hidden(allocator.kept(), shape, dtype), .after = {}};
  if (shape.saves_outputs) s.after = take_hidden(allocator.kept(), shape, dtype);
  return s;
}

SavedBytes GeluMlp::saved_bytes(BatchShape shape, DType dtype) const {
  return saved_bytes_of([&](SavedAllocator& allocator) { (void)saved(allocator, shape, dtype); });
}

std::size_t GeluMlp::workspace_bytes(BatchShape shape, DType dtype, Phase phase) const {
  ScratchAllocator allocator;
  (void)take_lora(allocator, shape, dtype);
  if (phase != Phase::train) return allocator.bytes();                   // GELU in place
  if (!shape.saves_outputs) (void)take_hidden(allocator, shape, dtype);  // GELU
  (void)take_hidden(allocator, shape, dtype);                            // backward: its gradient
  return allocator.bytes();
}

void GeluMlp::forward(const ForwardArgs& args, const TensorView& residual) const {
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const Saved s = saved(saved_allocator, args.shape, args.x.dtype);
  const LinearContext context = linear_context(take_lora(allocator, args.shape, args.x.dtype), args.batch, args.phase);
  const TensorView before = s.before;
  const TensorView after = s.after                      ? s.after
                           : args.phase == Phase::train ? take_hidden(allocator, args.shape, args.x.dtype)
                                                        : before;

  if (!args.recompute || !args.kept)
    up_.forward({.params = args.params, .x = args.x, .y = before, .context = context, .stream = args.stream});
  if (!args.writes_y) return;
  kernels::gelu_forward({.x = before, .y = after}, args.stream);
  down_.forward(
      {.params = args.params, .x = after, .y = args.y, .addend = residual, .context = context, .stream = args.stream});
}

void GeluMlp::backward(const BackwardArgs& args) const {
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const Saved s = saved(saved_allocator, args.shape, args.x.dtype);
  const LinearContext context =
      linear_context(take_lora(allocator, args.shape, args.x.dtype), args.batch, Phase::train);
  const TensorView before = s.before, after = s.after ? s.after : take_hidden(allocator, args.shape, args.x.dtype);
  const TensorView d = take_hidden(allocator, args.shape, args.x.dtype);  // gradient of `after`, then of `before`

  const Wanted wanted = args.wanted();
  const bool through_gelu = wanted.dx() || up_.has_wanted(wanted);

  if (!s.after && down_.weight_wanted(wanted)) kernels::gelu_forward({.x = before, .y = after}, args.stream);
  down_.backward({.params = args.params,
                  .grads = args.grads(),
                  .x = after,
                  .dy = args.dy,
                  .dx = through_gelu ? d : TensorView{},
                  .context = context,
                  .stream = args.stream});
  if (!through_gelu) return;
  kernels::gelu_backward({.x = before, .dy = d, .dx = d}, args.stream);
  up_.backward({.params = args.params,
                .grads = args.grads(),
                .x = args.x,
                .dy = d,
                .dx = args.dx,
                .context = context,
                .stream = args.stream});
}

double GeluMlp::recompute_flops(BatchShape shape, const RecomputeTask& what) const {
  return static_cast<double>(shape.batch * shape.tokens) *
         ((what.keeps ? 0.0 : up_.flops_per_row()) + (what.writes_y ? down_.flops_per_row() : 0.0));
}

bool GeluMlp::has_wanted(const Wanted& wanted) const { return up_.has_wanted(wanted) || down_.has_wanted(wanted); }

bool GeluMlp::backward_reads_input(const Wanted& wanted) const { return up_.weight_wanted(wanted); }

double GeluMlp::backward_flops(BatchShape shape, const Wanted& wanted) const {
  const bool through_gelu = wanted.dx() || up_.has_wanted(wanted);
  return static_cast<double>(shape.batch * shape.tokens) *
         (up_.backward_flops_per_row(wanted) + down_.backward_flops_per_row(wanted.with_dx(through_gelu)));
}

}  // namespace tessera::models
