// SPDX-License-Identifier: Apache-2.0
#pragma once
// FusedLinears: Linears that read one input, as q, k and v, or gate and up. Their outputs are columns of one matrix. On
// a device they are one GEMM in each direction where their weights lie one after the other in memory, as in a unit's
// flat buffer, and none has an adapter; elsewhere one GEMM each. The host computes the latter too in fp32, with the
// same bits wherever parameters lie; in 16 bits it joins what kernels::GemmParts says, if the weights are adjacent.

#include <vector>

#include "kernels/gemm.hpp"
#include "models/linear.hpp"

namespace tessera::models {

class FusedLinears {
 public:
  /// The module's parameters are all weights, then all biases, so that weights are adjacent; the model's list keeps
  /// weight and bias of each together.
  FusedLinears(const std::vector<LinearSpec>& specs, ParamList& params);

  void adapt(AdapterMaker& adapters);
  /// Linear::split_outputs of each; `sections`: of the one that there is.
  void split_outputs(const TensorSplit& over, const std::vector<std::int64_t>& sections);
  /// The first one is split, and the others are repeated (Linear::repeat_outputs), of which each has `parts` parts.
  /// There are several.
  void repeat_outputs(const TensorSplit& over, std::int64_t parts);

  /// The last one alone is split, or repeated where `parts` are fewer than ranks. The others are replicated: every rank
  /// computes all of their outputs, and gradients that are parts of sums over the ranks. There are several.
  void split_last(const TensorSplit& over, std::int64_t parts);

  /// Linear::ForwardArgs, with y (N, out()): the columns of the first, then of the next.
  void forward(const Linear::ForwardArgs& args) const;
  /// Linear::BackwardArgs, with dy (N, out()). First all gradients that read x, then dx, which may be x.
  void backward(const Linear::BackwardArgs& args) const;

  [[nodiscard]] std::size_t lora_workspace_bytes(std::int64_t rows, DType dtype) const;
  /// Whether the gradient of a weight or an adapter is wanted: backward then reads x.
  [[nodiscard]] bool weight_wanted(const Wanted& wanted) const;
  /// Whether that of any parameter is.
  [[nodiscard]] bool has_wanted(const Wanted& wanted) const;
  [[nodiscard]] std::int64_t in() const { return linears_.front().in(); }
  [[nodiscard]] std::int64_t out() const { return out_; }
  /// As Linear's, of all of them.
  [[nodiscard]] double flops_per_row() const;
  [[nodiscard]] double backward_flops_per_row(const Wanted& wanted) const;

 private:
  /// The views of one of the Linears' parameters as one matrix or vector; absent if they are not adjacent.
  [[nodiscard]] TensorView joined(std::span<const TensorView> views, int (Linear::*position)() const) const;
  [[nodiscard]] bool may_join() const;
  /// GemmArgs::parts for the dimension of the outputs.
  [[nodiscard]] kernels::GemmParts parts(kernels::GemmParts::Of of) const;
  [[nodiscard]] bool forward_joined(const Linear::ForwardArgs& args) const;
  [[nodiscard]] bool backward_weights_joined(const Linear::BackwardArgs& args) const;
  [[nodiscard]] bool backward_biases_joined(const Linear::BackwardArgs& args) const;
  [[nodiscard]] bool backward_input_joined(const Linear::BackwardArgs& args) const;

  std::int64_t out_ = 0;
  std::vector<Linear> linears_;
};

}  // namespace tessera::models
