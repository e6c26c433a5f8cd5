// SPDX-License-Identifier: Apache-2.0
// FusedLinears as one GEMM, or as its Linears one after the other.
#include "models/fused_linears.hpp"

#include <algorithm>
#include <ranges>

#include "kernels/bias.hpp"
#include "models/tensor_split.hpp"

namespace tessera::models {

FusedLinears::FusedLinears(const std::vector<LinearSpec>& specs, ParamList& params) {
  TESSERA_ASSERT(!specs.empty() && specs.size() <= kernels::GemmParts::most);
  std::vector<int> weights, biases;
  for (const LinearSpec& spec : specs) {
    TESSERA_ASSERT(spec.in == specs[0].in && spec.bias == specs[0].bias && spec.order == specs[0].order);
    weights.push_back(params.append(weight_param(spec)));
    if (spec.bias) biases.push_back(params.append(bias_param(spec)));
    out_ += spec.out;
  }
  for (int& weight : weights) weight = params.share(weight);
  for (int& bias : biases) bias = params.share(bias);
  for (std::size_t i = 0; i < specs.size(); ++i)
    linears_.emplace_back(specs[i], weights[i], biases.empty() ? -1 : biases[i]);
}

void FusedLinears::adapt(AdapterMaker& adapters) {
  for (Linear& linear : linears_) linear.adapt(adapters);
}

void FusedLinears::split_outputs(const TensorSplit& over, const std::vector<std::int64_t>& sections) {
  out_ = 0;
  for (Linear& linear : linears_) {
    linear.split_outputs(over, linears_.size() == 1 ? sections : std::vector<std::int64_t>());
    out_ += linear.out();
  }
}

void FusedLinears::repeat_outputs(const TensorSplit& over, std::int64_t parts) {
  if (linears_.size() == 1)
    TensorSplit::refuse("for fewer key and value heads than ranks where one matrix makes queries, keys and values");
  linears_.front().split_outputs(over);
  out_ = linears_.front().out();
  for (Linear& linear : std::span(linears_).subspan(1)) {
    linear.repeat_outputs(over, parts);
    out_ += linear.out();
  }
}

void FusedLinears::split_last(const TensorSplit& over, std::int64_t parts) {
  TESSERA_ASSERT(linears_.size() > 1);
  Linear& last = linears_.back();
  out_ -= last.out();
  if (parts < over.ranks()) last.repeat_outputs(over, parts);
  else last.split_outputs(over);
  out_ += last.out();
}

bool FusedLinears::may_join() const {
  return linears_.size() > 1 && linears_[0].order() == WeightOrder::out_in &&
         std::ranges::none_of(linears_, &Linear::is_adapted) && std::ranges::none_of(linears_, &Linear::is_repeated);
}

TensorView FusedLinears::joined(std::span<const TensorView> views, int (Linear::*position)() const) const {
  if (!are_adjacent(views, linears_ | std::views::transform(position))) return {};
  TensorView all = at(views, (linears_[0].*position)());
  all.shape = all.shape.rank() == 2 ? Shape{out_, in()} : Shape{out_};
  return all;
}

kernels::GemmParts FusedLinears::parts(kernels::GemmParts::Of of) const {
  kernels::GemmParts parts{.of = of};
  for (const Linear& linear : linears_) parts.sizes[parts.count++] = linear.out();
  return parts;
}

bool FusedLinears::forward_joined(const Linear::ForwardArgs& args) const {
  if (!may_join()) return false;
  const bool biased = linears_[0].bias() >= 0;
  const TensorView weight = joined(args.params, &Linear::weight),
                   bias = biased ? joined(args.params, &Linear::bias) : TensorView{};
  if (!weight || (biased && !bias)) return false;
  kernels::gemm({.a = args.x,
                 .b = weight,
                 .c = args.y,
                 .trans_b = true,
                 .addend = {},
                 .bias = bias,
                 .stride_a = args.x_stride,
                 .parts = parts(kernels::GemmParts::Of::n)},
                args.stream);
  return true;
}

void FusedLinears::forward(const Linear::ForwardArgs& args) const {
  TESSERA_ASSERT(!args.addend && args.y_stride == 0 && args.y.shape[1] == out_);
  if (forward_joined(args)) return;
  std::int64_t column = 0;
  for (const Linear& linear : linears_) {
    Linear::ForwardArgs part = args;
    part.y = columns(args.y, column, linear.out());
    part.y_stride = out_;
    linear.forward(part);
    column += linear.out();
  }
}

bool FusedLinears::backward_weights_joined(const Linear::BackwardArgs& args) const {
  if (!may_join()) return false;
  const TensorView dweight = joined(args.grads.views, &Linear::weight);
  const bool adds = args.grads.adds(linears_[0].weight());
  if (!dweight || std::ranges::any_of(linears_, [&](const Linear& l) { return args.grads.adds(l.weight()) != adds; }))
    return false;
  kernels::gemm({.a = args.dy,
                 .b = args.x,
                 .c = dweight,
                 .trans_a = true,
                 .beta = adds ? 1.0 : 0.0,
                 .addend = {},
                 .bias = {},
                 .parts = parts(kernels::GemmParts::Of::m)},
                args.stream);
  return true;
}

bool FusedLinears::backward_biases_joined(const Linear::BackwardArgs& args) const {
  if (linears_[0].bias() < 0) return true;  // there are none
  const TensorView dbias = joined(args.grads.views, &Linear::bias);
  const bool adds = args.grads.adds(linears_[0].bias());
  if (!dbias || std::ranges::any_of(linears_, [&](const Linear& l) { return args.grads.adds(l.bias()) != adds; }))
    return false;
  kernels::bias_backward({.dy = args.dy, .dbias = dbias, .accumulate = adds}, args.stream);
  return true;
}

bool FusedLinears::backward_input_joined(const Linear::BackwardArgs& args) const {
  if (!may_join()) return false;
  const TensorView weight = joined(args.params, &Linear::weight);
  if (!weight) return false;
  kernels::gemm(
      {.a = args.dy, .b = weight, .c = args.dx, .addend = {}, .bias = {}, .parts = parts(kernels::GemmParts::Of::k)},
      args.stream);
  return true;
}

void FusedLinears::backward(const Linear::BackwardArgs& args) const {
  TESSERA_ASSERT(args.write == Write::overwrite && args.dy_stride == 0 && args.dy.shape[1] == out_);
  const auto for_each = [&](const auto& f) {
    std::int64_t column = 0;
    for (const Linear& linear : linears_) {
      Linear::BackwardArgs part = args;
      part.dy = columns(args.dy, column, linear.out());
      part.dy_stride = out_;
      part.write = column > 0 ? Write::add : Write::overwrite;
      f(linear, part);
      column += linear.out();
    }
  };
  if (!backward_weights_joined(args))
    for_each([](const Linear& linear, const Linear::BackwardArgs& part) { linear.backward_params(part); });
  else if (!backward_biases_joined(args))
    for_each([](const Linear& linear, const Linear::BackwardArgs& part) { linear.backward_bias(part); });
  if (!args.dx || backward_input_joined(args)) return;
  for_each([](const Linear& linear, const Linear::BackwardArgs& part) { linear.backward_input(part); });
}

std::size_t FusedLinears::lora_workspace_bytes(std::int64_t rows, DType dtype) const {
  std::size_t bytes = 0;
  for (const Linear& linear : linears_) bytes = std::max(bytes, linear.lora_workspace_bytes(rows, dtype));
  return bytes;
}

bool FusedLinears::weight_wanted(const Wanted& wanted) const {
  return std::ranges::any_of(linears_, [&](const Linear& linear) { return linear.weight_wanted(wanted); });
}

bool FusedLinears::has_wanted(const Wanted& wanted) const {
  return std::ranges::any_of(linears_, [&](const Linear& linear) { return linear.has_wanted(wanted); });
}

double FusedLinears::flops_per_row() const {
  double flops = 0;
  for (const Linear& linear : linears_) flops += linear.flops_per_row();
  return flops;
}

double FusedLinears::backward_flops_per_row(const Wanted& wanted) const {
  double flops = 0;
  for (const Linear& linear : linears_) flops += linear.backward_flops_per_row(wanted);
  return flops;
}

}  // namespace tessera::models
