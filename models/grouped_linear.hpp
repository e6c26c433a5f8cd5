// SPDX-License-Identifier: Apache-2.0
#pragma once
// GroupedLinear: a Linear without bias for each group of rows (grouped GEMM), or several that read the same rows, as an
// expert's gate and up. Their outputs are then columns of one matrix. They are one grouped GEMM in each direction where
// a group's weights are adjacent in memory, are (out, in) and have no adapter; elsewhere one each. The host divides one
// grouped GEMM as kernels::GemmParts says.

#include <optional>
#include <vector>

#include "models/group_params.hpp"
#include "models/linear.hpp"

namespace tessera::models {

class GroupedLinear {
 public:
  /// Adds the next group: group e has rows [offsets[e], offsets[e+1]). All groups have the same shapes, and their
  /// weights are equally spaced among the module's parameters.
  void add(const std::vector<LinearSpec>& specs, ParamList& params);
  /// All groups at once, in one parameter (groups, in, out), in place of add. It has no adapters.
  void add_fused(const ParamSpec& weights, ParamList& params);
  /// Gives every group its adapters, if they are chosen for them: all groups have one, or none. Once, after the last
  /// group.
  void adapt(AdapterMaker& adapters);
  /// As Linear's, of every group: each of the weights that read the same rows has a part of its own outputs; of a fused
  /// one a part of each of the `sections` of its outputs, or without them of all. Not of quantized ones.
  void split_outputs(const TensorSplit& over, const std::vector<std::int64_t>& sections = {});
  void split_inputs(const TensorSplit& over);

  struct Args {
    std::span<const TensorView> params;
    Gradients grads;            // backward_params
    TensorView offsets;         // (groups + 1) int32, read by kernels only
    TensorView x, y;            // (N, in()), (N, out()), or their gradients
    std::int64_t stride_x = 0;  // elements from row to row if x is columns of a wider matrix; 0: contiguous
    TensorView lora;            // lora_workspace_bytes(N, dtype), of the adapters
    StreamView stream = host_stream;
  };
  /// y = x·W
  void forward(const Args& args) const;
  /// dW from x and the gradient y, of the groups whose weights have a buffer; on a device all have, or none.
  void backward_params(const Args& args) const;
  /// x = the gradient of the input, from the gradient y.
  void backward_input(const Args& args) const;

  [[nodiscard]] std::size_t lora_workspace_bytes(std::int64_t rows, DType dtype) const;
  /// Whether the gradient of any group's weight or adapter is wanted.
  [[nodiscard]] bool has_wanted(const Wanted& wanted) const;
  [[nodiscard]] std::int64_t in() const { return in_; }
  [[nodiscard]] std::int64_t out() const { return out_; }  // of all
  /// Of the forward pass, per row.
  [[nodiscard]] double flops_per_row() const;
  /// Of the backward pass, per row of equally large groups.
  [[nodiscard]] double backward_flops_per_row(const Wanted& wanted) const;

 private:
  /// One of the Linears, of all groups.
  struct Part {
    std::int64_t out = 0;
    GroupParams weights;
    std::optional<LoraBranch> lora;
  };
  /// Whether one parameter has all groups.
  [[nodiscard]] bool is_fused() const { return parts_[0].weights.step == 0; }
  void divide(const Part& part, const TensorSplit& over, int dim) const;
  void divide_fused(const TensorSplit& over, int dim, const std::vector<std::int64_t>& sections) const;
  [[nodiscard]] double weight_flops(const Part& part) const {
    return 2.0 * static_cast<double>(in_) * static_cast<double>(part.out);
  }
  /// A part's columns of y, or of its gradient.
  struct Columns {
    TensorView view;
    std::int64_t stride;  // elements from row to row; 0: contiguous
  };
  /// Each group's weights, or their gradients, as one matrix; absent if there is one part, they are not adjacent, are
  /// (in, out), or a part has an adapter.
  [[nodiscard]] std::optional<kernels::GroupMatrices> joined(std::span<const TensorView> views) const;
  [[nodiscard]] kernels::GemmParts gemm_parts(kernels::GemmParts::Of of) const;
  /// Calls f(part, its columns of y, whether it is the first) for each.
  template <class F>
  void for_each_part(const TensorView& y, const F& f) const;
  [[nodiscard]] static LoraBranch::Args branch_args(const Args& args, const Columns& y);
  [[nodiscard]] bool backward_params_joined(const Args& args) const;

  std::int64_t in_ = 0, out_ = 0;
  WeightOrder order_ = WeightOrder::out_in;
  std::vector<Part> parts_;
};

}  // namespace tessera::models
