// SPDX-License-Identifier: Apache-2.0
// GroupedLinear as grouped GEMMs: one forward, two backward; or those of its parts, one after the other.
#include "models/grouped_linear.hpp"

#include <algorithm>

namespace tessera::models {

void GroupedLinear::add(const std::vector<LinearSpec>& specs, ParamList& params) {
  if (parts_.empty()) {
    TESSERA_ASSERT(!specs.empty() && specs.size() <= kernels::GemmParts::most);
    parts_.resize(specs.size());
    in_ = specs[0].in, order_ = specs[0].order;
  }
  TESSERA_ASSERT(specs.size() == parts_.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const LinearSpec& spec = specs[i];
    Part& part = parts_[i];
    GroupParams& weights = part.weights;
    const int weight = params.add(weight_param(spec));
    if (weights.groups == 0) part.out = spec.out, out_ += spec.out, weights.first = weight;
    if (weights.groups == 1) weights.step = weight - weights.first;
    TESSERA_ASSERT(spec.in == in_ && spec.out == part.out && spec.order == order_ && !spec.bias &&
                       weight == weights.at(weights.groups),
                   "%s is no group's", spec.prefix.c_str());
    ++weights.groups;
  }
}

void GroupedLinear::adapt(AdapterMaker& adapters, std::int64_t active) {
  for (Part& part : parts_)
    if (const auto positions = adapters.add_group({part.weights.first, part.weights.step, part.weights.groups, active},
                                                  in_, part.out, order_ == WeightOrder::in_out))
      part.lora.emplace(*positions, part.weights.groups, in_, part.out, adapters.spec());
}

std::optional<kernels::GroupMatrices> GroupedLinear::joined(std::span<const TensorView> views) const {
  if (parts_.size() == 1 || order_ == WeightOrder::in_out ||
      std::ranges::any_of(parts_, [](const Part& part) { return part.lora.has_value(); }))
    return std::nullopt;
  const GroupParams& first = parts_[0].weights;
  for (std::int64_t e = 0; e < first.groups; ++e) {
    const TensorView& start = at(views, first.at(e));
    const std::byte* end = static_cast<const std::byte*>(start.data);
    for (const Part& part : parts_) {
      const TensorView& view = at(views, part.weights.at(e));
      if (!view || view.data != end || view.dtype != start.dtype || view.device != start.device) return std::nullopt;
      end += view.nbytes();
    }
  }
  kernels::GroupMatrices matrices = first.of(views);
  matrices.rows = out_;
  return matrices;
}

kernels::GemmParts GroupedLinear::gemm_parts(kernels::GemmParts::Of of) const {
  kernels::GemmParts parts{.of = of};
  for (const Part& part : parts_) parts.sizes[parts.count++] = part.out;
  return parts;
}

template <class F>
void GroupedLinear::for_each_part(const Args& args, const F& f) const {
  std::int64_t column = 0;
  for (const Part& part : parts_) {
    Args of_part = args;
    if (parts_.size() > 1) {
      of_part.y = columns(args.y, column, part.out);
      of_part.stride_y = args.stride_y > 0 ? args.stride_y : out_;
      if (column > 0) of_part.write = Write::add;
    }
    f(part, of_part);
    column += part.out;
  }
}

namespace {

GroupedLoraBranch::Args branch_args(const GroupedLinear::Args& args) {
  return {.params = args.params,
          .grads = args.grads,
          .offsets = args.offsets,
          .x = args.x,
          .y = args.y,
          .stride_x = args.stride_x,
          .stride_y = args.stride_y,
          .workspace = args.lora,
          .stream = args.stream};
}

}  // namespace

void GroupedLinear::forward(const Args& args) const {
  kernels::GroupedGemmArgs gemm{.offsets = args.offsets,
                                .a = args.x,
                                .c = args.y,
                                .trans_b = order_ == WeightOrder::out_in,
                                .stride_a = args.stride_x,
                                .stride_c = args.stride_y};
  if (const auto weights = joined(args.params)) {
    gemm.b = *weights, gemm.parts = gemm_parts(kernels::GemmParts::Of::n);
    kernels::grouped_gemm(gemm, args.stream);
    return;
  }
  for_each_part(args, [&](const Part& part, const Args& of_part) {
    gemm.b = part.weights.of(args.params), gemm.c = of_part.y, gemm.stride_c = of_part.stride_y;
    kernels::grouped_gemm(gemm, args.stream);
    if (part.lora) part.lora->forward(branch_args(of_part));
  });
}

bool GroupedLinear::backward_params_joined(const Args& args) const {
  const auto gradients = joined(args.grads.views);
  if (!gradients) return false;
  const bool adds = args.grads.adds(parts_[0].weights.first);
  for (const Part& part : parts_)
    if (args.grads.adds(part.weights.first_wanted(args.grads)) != adds) return false;
  kernels::grouped_gemm_gradient({.offsets = args.offsets,
                                  .a = args.y,
                                  .b = args.x,
                                  .c = *gradients,
                                  .add = adds,
                                  .stride_a = args.stride_y,
                                  .stride_b = args.stride_x,
                                  .parts = gemm_parts(kernels::GemmParts::Of::m)},
                                 args.stream);
  return true;
}

void GroupedLinear::backward_params(const Args& args) const {
  if (backward_params_joined(args)) return;
  const bool in_out = order_ == WeightOrder::in_out;
  for_each_part(args, [&](const Part& part, const Args& of_part) {
    if (const int first = part.weights.first_wanted(args.grads); first >= 0)  // dW = xᵀ·dy, or its transpose dyᵀ·x
      kernels::grouped_gemm_gradient({.offsets = args.offsets,
                                      .a = in_out ? args.x : of_part.y,
                                      .b = in_out ? of_part.y : args.x,
                                      .c = part.weights.of(args.grads.views),
                                      .add = args.grads.adds(first),
                                      .stride_a = in_out ? args.stride_x : of_part.stride_y,
                                      .stride_b = in_out ? of_part.stride_y : args.stride_x},
                                     args.stream);
    if (part.lora) part.lora->backward_params(branch_args(of_part));
  });
}

void GroupedLinear::backward_input(const Args& args) const {
  kernels::GroupedGemmArgs gemm{.offsets = args.offsets,
                                .a = args.y,
                                .c = args.x,
                                .trans_b = order_ == WeightOrder::in_out,
                                .add = args.write == Write::add,
                                .stride_a = args.stride_y,
                                .stride_c = args.stride_x};
  if (const auto weights = joined(args.params)) {
    gemm.b = *weights, gemm.parts = gemm_parts(kernels::GemmParts::Of::k);
    kernels::grouped_gemm(gemm, args.stream);
    return;
  }
  for_each_part(args, [&](const Part& part, const Args& of_part) {
    gemm.b = part.weights.of(args.params), gemm.a = of_part.y, gemm.stride_a = of_part.stride_y;
    gemm.add = of_part.write == Write::add;
    kernels::grouped_gemm(gemm, args.stream);
    if (part.lora) part.lora->backward_input(branch_args(of_part));
  });
}

std::size_t GroupedLinear::lora_workspace_bytes(std::int64_t rows, DType dtype) const {
  std::size_t bytes = 0;
  for (const Part& part : parts_)
    if (part.lora) bytes = std::max(bytes, part.lora->workspace_bytes(rows, dtype));
  return bytes;
}

bool GroupedLinear::has_wanted(const Wanted& wanted) const {
  return std::ranges::any_of(parts_, [&](const Part& part) {
    return part.weights.num_wanted(wanted) > 0 || (part.lora && part.lora->has_wanted(wanted));
  });
}

double GroupedLinear::flops_per_row() const {
  double flops = 0;
  for (const Part& part : parts_) flops += weight_flops(part) + (part.lora ? part.lora->flops_per_row() : 0.0);
  return flops;
}

double GroupedLinear::backward_flops_per_row(const Wanted& wanted) const {
  double flops = 0;
  for (const Part& part : parts_)
    flops += weight_flops(part) * (part.weights.part_wanted(wanted) + (wanted.dx() ? 1.0 : 0.0)) +
             (part.lora ? part.lora->backward_flops_per_row(wanted) : 0.0);
  return flops;
}

}  // namespace tessera::models
