// SPDX-License-Identifier: Apache-2.0
// GroupedLinear as grouped GEMMs: one forward, two backward; or those of its parts, one after the other.
#include "models/grouped_linear.hpp"

#include <algorithm>
#include <ranges>

#include "models/tensor_split.hpp"

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
                   "%s differs in shape or position from the other groups", spec.prefix.c_str());
    ++weights.groups;
  }
}

void GroupedLinear::add_fused(const ParamSpec& weights, ParamList& params) {
  TESSERA_ASSERT(parts_.empty() && weights.shape.rank() == 3);
  in_ = weights.shape[1], out_ = weights.shape[2], order_ = WeightOrder::in_out;
  parts_.push_back({.out = out_, .weights = {params.add(weights), /*step=*/0, weights.shape[0]}, .lora = {}});
}

void GroupedLinear::adapt(AdapterMaker& adapters) {
  if (is_fused()) return;
  for (Part& part : parts_)
    if (const auto positions = adapters.add_group({part.weights.first, part.weights.step, part.weights.groups}, in_,
                                                  part.out, order_ == WeightOrder::in_out))
      part.lora.emplace(*positions, in_, part.out, adapters.spec());
}

void GroupedLinear::split_outputs(const TensorSplit& over, const std::vector<std::int64_t>& sections) {
  out_ = 0;
  for (Part& part : parts_) {
    if (part.lora) part.lora->split_outputs(over, {});
    out_ += part.out = over.part(part.out, "outputs of an expert's matrix");
    if (is_fused()) divide_fused(over, 2, sections);
    else divide(part, over, 0);
  }
}

void GroupedLinear::split_inputs(const TensorSplit& over) {
  in_ = over.part(in_, "inputs of an expert's matrix");
  for (Part& part : parts_) {
    if (part.lora) part.lora->split_inputs(over);
    if (is_fused()) divide_fused(over, 1, {});
    else divide(part, over, 1);
  }
}

void GroupedLinear::divide_fused(const TensorSplit& over, int dim, const std::vector<std::int64_t>& sections) const {
  const int weights = parts_[0].weights.first;
  if (over.is_quantized(weights)) TensorSplit::refuse("for quantized experts");
  over.divide(weights, dim, sections);
}

void GroupedLinear::divide(const Part& part, const TensorSplit& over, int dim) const {
  TESSERA_ASSERT(order_ == WeightOrder::out_in);
  for (std::int64_t e = 0; e < part.weights.groups; ++e) {
    if (over.is_quantized(part.weights.at(e))) TensorSplit::refuse("for quantized experts");
    over.divide(part.weights.at(e), dim);
  }
}

std::optional<kernels::GroupMatrices> GroupedLinear::joined(std::span<const TensorView> views) const {
  if (parts_.size() == 1 || order_ == WeightOrder::in_out ||
      std::ranges::any_of(parts_, [](const Part& part) { return part.lora.has_value(); }))
    return std::nullopt;
  const GroupParams& first = parts_[0].weights;
  for (std::int64_t e = 0; e < first.groups; ++e)
    if (!are_adjacent(views, parts_ | std::views::transform([&](const Part& part) { return part.weights.at(e); })))
      return std::nullopt;
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
void GroupedLinear::for_each_part(const TensorView& y, const F& f) const {
  std::int64_t column = 0;
  for (const Part& part : parts_) {
    f(part, Columns{columns(y, column, part.out), parts_.size() > 1 ? out_ : 0}, column == 0);
    column += part.out;
  }
}

LoraBranch::Args GroupedLinear::branch_args(const Args& args, const Columns& y) {
  return {.params = args.params,
          .grads = args.grads,
          .offsets = args.offsets,
          .x = args.x,
          .x_stride = args.stride_x,
          .y = y.view,
          .y_stride = y.stride,
          .context = {.lora = args.lora},
          .stream = args.stream};
}

void GroupedLinear::forward(const Args& args) const {
  TESSERA_ASSERT(args.y.shape[1] == out_);
  kernels::GroupedGemmArgs gemm{.offsets = args.offsets,
                                .a = args.x,
                                .c = args.y,
                                .trans_b = order_ == WeightOrder::out_in,
                                .stride_a = args.stride_x};
  if (const auto weights = joined(args.params)) {
    gemm.b = *weights, gemm.parts = gemm_parts(kernels::GemmParts::Of::n);
    kernels::grouped_gemm(gemm, args.stream);
    return;
  }
  for_each_part(args.y, [&](const Part& part, const Columns& y, bool) {
    gemm.b = part.weights.of(args.params), gemm.c = y.view, gemm.stride_c = y.stride;
    kernels::grouped_gemm(gemm, args.stream);
    if (part.lora) part.lora->forward(branch_args(args, y));
  });
}

bool GroupedLinear::backward_params_joined(const Args& args) const {
  const auto gradients = joined(args.grads.views);
  if (!gradients) return false;
  const auto adds = [&](const Part& part) { return args.grads.adds(part.weights.first_wanted(args.grads)); };
  const bool add = adds(parts_[0]);
  if (std::ranges::any_of(parts_, [&](const Part& part) { return adds(part) != add; })) return false;
  kernels::grouped_gemm_gradient({.offsets = args.offsets,
                                  .a = args.y,
                                  .b = args.x,
                                  .c = *gradients,
                                  .add = add,
                                  .stride_b = args.stride_x,
                                  .parts = gemm_parts(kernels::GemmParts::Of::m)},
                                 args.stream);
  return true;
}

void GroupedLinear::backward_params(const Args& args) const {
  TESSERA_ASSERT(args.y.shape[1] == out_);
  if (backward_params_joined(args)) return;
  const bool in_out = order_ == WeightOrder::in_out;
  for_each_part(args.y, [&](const Part& part, const Columns& y, bool) {
    if (const int first = part.weights.first_wanted(args.grads); first >= 0)  // dW = xᵀ·dy, or its transpose dyᵀ·x
      kernels::grouped_gemm_gradient({.offsets = args.offsets,
                                      .a = in_out ? args.x : y.view,
                                      .b = in_out ? y.view : args.x,
                                      .c = part.weights.of(args.grads.views),
                                      .add = args.grads.adds(first),
                                      .stride_a = in_out ? args.stride_x : y.stride,
                                      .stride_b = in_out ? y.stride : args.stride_x},
                                     args.stream);
    if (part.lora) part.lora->backward_params(branch_args(args, y));
  });
}

void GroupedLinear::backward_input(const Args& args) const {
  TESSERA_ASSERT(args.y.shape[1] == out_);
  kernels::GroupedGemmArgs gemm{.offsets = args.offsets,
                                .a = args.y,
                                .c = args.x,
                                .trans_b = order_ == WeightOrder::in_out,
                                .stride_c = args.stride_x};
  if (const auto weights = joined(args.params)) {
    gemm.b = *weights, gemm.parts = gemm_parts(kernels::GemmParts::Of::k);
    kernels::grouped_gemm(gemm, args.stream);
    return;
  }
  for_each_part(args.y, [&](const Part& part, const Columns& y, bool first) {
    gemm.b = part.weights.of(args.params), gemm.a = y.view, gemm.stride_a = y.stride, gemm.add = !first;
    kernels::grouped_gemm(gemm, args.stream);
    if (part.lora) part.lora->backward_input(branch_args(args, y));
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
