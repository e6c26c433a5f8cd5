// SPDX-License-Identifier: Apache-2.0
#pragma once
// Linear: y = x·W + b, with W stored either way, and perhaps an adapter (lora_branch.hpp). Knows its shapes and its
// positions among the module's parameters; owns no memory.

#include <optional>
#include <string>

#include "models/lora_branch.hpp"
#include "models/params.hpp"

namespace tessera::models {

class TensorSplit;

/// in_out: W is (in, out), as GPT-2's Conv1D. out_in: W is (out, in), as nn.Linear.
enum class WeightOrder : unsigned char { in_out, out_in };

/// Specification of a Linear. Parameters are prefix + ".weight" and ".bias".
struct LinearSpec {
  std::string prefix;
  std::int64_t in = 0, out = 0;
  WeightOrder order = WeightOrder::out_in;
  bool bias = false;
  double std = 0.02;  // of initial weights; biases start at 0
};

/// The parameters of a Linear; `bias` only if it has one.
[[nodiscard]] ParamSpec weight_param(const LinearSpec& spec);
[[nodiscard]] ParamSpec bias_param(const LinearSpec& spec);

class Linear {
 public:
  Linear(const LinearSpec& spec, ParamList& params);
  /// Of parameters that are in the module already, by their positions; bias -1: none.
  Linear(const LinearSpec& spec, int weight, int bias)
      : in_(spec.in), out_(spec.out), order_(spec.order), weight_(weight), bias_(bias) {}

  struct ForwardArgs {
    std::span<const TensorView> params;
    TensorView x;               // (N, in)
    std::int64_t x_stride = 0;  // elements from row to row if x is columns of a wider matrix; 0: in
    TensorView y;               // (N, out)
    TensorView addend;          // (N, out), not over y: y = addend + x·W + b, rounded once; absent: none
    std::int64_t y_stride = 0;  // as x_stride; 0: out
    LinearContext context;
    StreamView stream = host_stream;
  };
  void forward(const ForwardArgs& args) const;

  struct BackwardArgs {
    std::span<const TensorView> params;
    Gradients grads;
    TensorView x;                    // (N, in)
    TensorView dy;                   // (N, out)
    TensorView dx;                   // (N, in), overwritten; may be x; absent: not wanted
    std::int64_t dy_stride = 0;      // as y_stride
    Write write = Write::overwrite;  // of dx
    LinearContext context;
    StreamView stream = host_stream;
  };
  /// Gradients of the parameters that have a buffer, then dx.
  void backward(const BackwardArgs& args) const {
    backward_params(args);
    backward_input(args);
  }
  /// The two parts, for several Linears that read one x. The first needs no dx, the second no x.
  void backward_params(const BackwardArgs& args) const;
  void backward_input(const BackwardArgs& args) const;

  /// The part of backward_params that is the gradient of the bias, if there is one and it has a buffer.
  void backward_bias(const BackwardArgs& args) const;

  /// It has a part of its outputs, of each of `sections` of them, or of its inputs (split_tensors). Of the sum of the
  /// latter's outputs the first rank's has the bias. A quantized matrix is replicated, and a rank reads its part.
  void split_outputs(const TensorSplit& over, std::vector<std::int64_t> sections = {});
  void split_inputs(const TensorSplit& over);
  /// It has one of `parts` equal parts of its outputs; where they are fewer than ranks, several have the same one. The
  /// parameters are replicated, and the gradient that a rank computes of them is 0 elsewhere.
  void repeat_outputs(const TensorSplit& over, std::int64_t parts);

  /// Gives it an adapter, if one is chosen for it. Once, before it is used.
  void adapt(AdapterMaker& adapters, AdapterMaker::Kind kind = AdapterMaker::Kind::linear);
  /// Bytes of LinearContext::lora, for N rows; 0 without an adapter.
  [[nodiscard]] std::size_t lora_workspace_bytes(std::int64_t rows, DType dtype) const {
    return lora_ ? lora_->workspace_bytes(rows, dtype) : 0;
  }

  /// Whether the gradient of the weight, or of the adapter, is wanted: backward_params then reads x.
  [[nodiscard]] bool weight_wanted(const Wanted& wanted) const {
    return wanted[weight_] || (lora_ && lora_->has_wanted(wanted));
  }
  /// Whether that of any of its parameters is.
  [[nodiscard]] bool has_wanted(const Wanted& wanted) const {
    return weight_wanted(wanted) || (bias_ >= 0 && wanted[bias_]);
  }
  [[nodiscard]] std::int64_t in() const { return in_; }
  [[nodiscard]] std::int64_t out() const { return out_; }
  /// Positions among the module's parameters; bias -1: none.
  [[nodiscard]] int weight() const { return weight_; }
  [[nodiscard]] int bias() const { return bias_; }
  [[nodiscard]] WeightOrder order() const { return order_; }
  [[nodiscard]] bool is_adapted() const { return lora_.has_value(); }
  [[nodiscard]] bool is_repeated() const { return repeats_ > 0; }
  /// Of the forward pass, per row.
  [[nodiscard]] double flops_per_row() const { return weight_flops() + (lora_ ? lora_->flops_per_row() : 0.0); }
  /// Of the backward pass, per row.
  [[nodiscard]] double backward_flops_per_row(const Wanted& wanted) const {
    return weight_flops() * ((wanted[weight_] ? 1.0 : 0.0) + (wanted.dx() ? 1.0 : 0.0)) +
           (lora_ ? lora_->backward_flops_per_row(wanted) : 0.0);
  }

 private:
  [[nodiscard]] double weight_flops() const { return 2.0 * static_cast<double>(in_) * static_cast<double>(out_); }
  [[nodiscard]] static LoraBranch::Args branch_args(const BackwardArgs& args, const TensorView& x);
  /// Of a replicated parameter, the rows of the outputs that this rank has.
  [[nodiscard]] TensorView own_rows(const TensorView& param, const LinearContext& context) const {
    return repeats_ > 0 ? param.rows(context.tensor_rank / repeats_ * out_, out_) : param;
  }
  [[nodiscard]] TensorView own_weight(std::span<const TensorView> params, const LinearContext& context) const;
  [[nodiscard]] TensorView bias_of(const ForwardArgs& args) const;
  /// The memory of the gradient of the rows that this rank has; 0 is written to the others.
  [[nodiscard]] TensorView own_gradient(const BackwardArgs& args, int param) const;

  std::int64_t in_, out_;
  WeightOrder order_;
  int weight_, bias_ = -1;       // positions in the module's parameters; -1: none
  bool sums_outputs_ = false;    // split_inputs
  int repeats_ = 0;              // repeat_outputs: ranks that have the same part; 0: not called
  std::int64_t row_stride_ = 0;  // of a weight whose inputs a rank has a part of, if it is replicated; 0: it is not
  std::optional<LoraBranch> lora_;
};

/// The context in a pass; dropout is of training alone.
[[nodiscard]] inline LinearContext linear_context(const TensorView& workspace, const Batch* batch, Phase phase) {
  const bool drops = phase == Phase::train && batch != nullptr;
  return {workspace, drops ? &batch->dropout : nullptr, batch != nullptr ? batch->tensor_rank : 0};
}

}  // namespace tessera::models
