// SPDX-License-Identifier: Apache-2.0
// Linear as GEMMs: one forward, two backward.
#include "models/linear.hpp"

#include "kernels/bias.hpp"
#include "kernels/gemm.hpp"
#include "models/tensor_split.hpp"

namespace tessera::models {

ParamSpec weight_param(const LinearSpec& spec) {
  const Shape shape = spec.order == WeightOrder::in_out ? Shape{spec.in, spec.out} : Shape{spec.out, spec.in};
  return {.name = spec.prefix + ".weight", .shape = shape, .init = {Initializer::Kind::normal, spec.std}};
}

ParamSpec bias_param(const LinearSpec& spec) {
  return {.name = spec.prefix + ".bias", .shape = {spec.out}, .decay = false};
}

Linear::Linear(const LinearSpec& spec, ParamList& params)
    : in_(spec.in), out_(spec.out), order_(spec.order), weight_(params.add(weight_param(spec))) {
  if (spec.bias) bias_ = params.add(bias_param(spec));
}

TensorView Linear::bias_of(const ForwardArgs& args) const {
  if (bias_ < 0 || (sums_outputs_ && args.context.tensor_rank > 0)) return {};
  return own_rows(at(args.params, bias_), args.context);
}

void Linear::forward(const ForwardArgs& args) const {
  kernels::gemm({.a = args.x,
                 .b = own_weight(args.params, args.context),
                 .c = args.y,
                 .trans_b = order_ == WeightOrder::out_in,
                 .beta = args.addend ? 1.0 : 0.0,
                 .addend = args.addend,
                 .bias = bias_of(args),
                 .stride_a = args.x_stride,
                 .stride_b = row_stride_,
                 .stride_c = args.y_stride},
                args.stream);
  if (!lora_) return;
  lora_->forward({.params = args.params,
                  .grads = {},
                  .x = args.x,
                  .x_stride = args.x_stride,
                  .y = args.y,
                  .y_stride = args.y_stride,
                  .context = args.context,
                  .stream = args.stream});
}

void Linear::adapt(AdapterMaker& adapters, AdapterMaker::Kind kind) {
  if (const auto positions = adapters.add(weight_, in_, out_, order_ == WeightOrder::in_out, kind))
    lora_.emplace(*positions, in_, out_, adapters.spec());
}

void Linear::split_outputs(const TensorSplit& over, std::vector<std::int64_t> sections) {
  if (over.is_quantized(weight_)) {
    if (!sections.empty()) TensorSplit::refuse("for quantized matrices of which each makes several things");
    (void)over.part(out_, "outputs of a matrix");
    return repeat_outputs(over, over.ranks());
  }
  if (lora_) lora_->split_outputs(over, sections);
  out_ = over.part(out_, "outputs of a matrix");
  over.divide(weight_, order_ == WeightOrder::in_out ? 1 : 0, sections);
  if (bias_ >= 0) over.divide(bias_, 0, std::move(sections));
}

void Linear::split_inputs(const TensorSplit& over) {
  if (lora_) lora_->split_inputs(over);
  in_ = over.part(in_, "inputs of a matrix");
  sums_outputs_ = true;
  if (over.is_quantized(weight_)) row_stride_ = in_ * over.ranks();
  else over.divide(weight_, order_ == WeightOrder::in_out ? 0 : 1);
}

TensorView Linear::own_weight(std::span<const TensorView> params, const LinearContext& context) const {
  const TensorView& weight = at(params, weight_);
  return row_stride_ > 0 ? columns(weight, context.tensor_rank * in_, in_) : own_rows(weight, context);
}

void Linear::repeat_outputs(const TensorSplit& over, std::int64_t parts) {
  TESSERA_ASSERT(order_ == WeightOrder::out_in && out_ % parts == 0 && over.ranks() % parts == 0, "%ld parts of %ld",
                 parts, out_);
  out_ /= parts;
  repeats_ = static_cast<int>(over.ranks() / parts);
  if (lora_) lora_->repeat_outputs(repeats_, out_);
}

LoraBranch::Args Linear::branch_args(const BackwardArgs& args, const TensorView& x) {
  return {.params = args.params,
          .grads = args.grads,
          .x = x,
          .y = args.dy,
          .y_stride = args.dy_stride,
          .context = args.context,
          .stream = args.stream};
}

TensorView Linear::own_gradient(const BackwardArgs& args, int param) const {
  const TensorView& all = args.grads[param];
  if (repeats_ > 0 && !args.grads.adds(param)) clear(all, args.stream);
  return own_rows(all, args.context);
}

void Linear::backward_params(const BackwardArgs& args) const {
  const bool in_out = order_ == WeightOrder::in_out;
  if (args.grads[weight_])  // dW = xᵀ·dy, or its transpose dyᵀ·x
    kernels::gemm({.a = in_out ? args.x : args.dy,
                   .b = in_out ? args.dy : args.x,
                   .c = own_gradient(args, weight_),
                   .trans_a = true,
                   .beta = args.grads.adds(weight_) ? 1.0 : 0.0,
                   .stride_a = in_out ? 0 : args.dy_stride,
                   .stride_b = in_out ? args.dy_stride : 0},
                  args.stream);
  if (lora_) lora_->backward_params(branch_args(args, args.x));
  backward_bias(args);
}

void Linear::backward_bias(const BackwardArgs& args) const {
  if (bias_ < 0 || !args.grads[bias_]) return;
  if (sums_outputs_ && args.context.tensor_rank > 0) {  // the bias is not in this rank's outputs
    if (!args.grads.adds(bias_)) clear(args.grads[bias_], args.stream);
    return;
  }
  kernels::bias_backward({.dy = args.dy,
                          .stride = args.dy_stride,
                          .dbias = own_gradient(args, bias_),
                          .accumulate = args.grads.adds(bias_)},
                         args.stream);
}

void Linear::backward_input(const BackwardArgs& args) const {
  if (!args.dx) return;
  kernels::gemm({.a = args.dy,
                 .b = own_weight(args.params, args.context),
                 .c = args.dx,
                 .trans_b = order_ == WeightOrder::in_out,
                 .beta = args.write == Write::add ? 1.0 : 0.0,
                 .stride_a = args.dy_stride,
                 .stride_b = row_stride_},
                args.stream);
  if (lora_) lora_->backward_input(branch_args(args, args.dx));
}

}  // namespace tessera::models
