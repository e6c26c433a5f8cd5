// SPDX-License-Identifier: Apache-2.0
#pragma once
// A mixture of experts as a sublayer: a router chooses K of E SwiGLU MLPs for each token and weights their outputs, or,
// of Llama 4, their inputs. No token is dropped. Those of a layer may be in one tensor, with the biases and the clamped
// activation of gpt-oss or without.

#include "kernels/clamped_swiglu.hpp"
#include "kernels/moe.hpp"
#include "models/grouped_linear.hpp"
#include "models/sublayer.hpp"

namespace tessera::models {

/// A layer's experts in parameters of all of them.
struct FusedExpertsSpec {
  ParamSpec gate_up, down;  // (E, C, 2·I), columns of gate, then of up; (E, I, C)
  /// gpt-oss's: gate and up are interleaved columns.
  struct Clamped {
    ParamSpec router_bias, gate_up_bias, down_bias;  // (E), (E, 2·I), (E, C)
    kernels::GateLimits limits;
  };
  std::optional<Clamped> clamped;
};

struct MoeMlpSpec {
  LinearSpec router;  // in C, out E
  struct Expert {
    LinearSpec gate, up, down;
  };
  std::vector<Expert> experts;  // all of one shape; or:
  std::optional<FusedExpertsSpec> fused = {};
  std::int64_t top_k = 0;  // K
  kernels::ExpertWeights weigh = kernels::ExpertWeights::normalized;
  bool weighs_inputs = false;  // the weights multiply the experts' inputs in place of their outputs; of fused ones
  int layer = 0;               // index among the model's mixtures: its row of Batch::router
  double balance = 0;          // coefficient of the balance loss; 0: measured only
};

class MoeMlp final : public Sublayer {
 public:
  MoeMlp(const MoeMlpSpec& spec, ParamList& params);

  void adapt(AdapterMaker& adapters) override;
  /// A rank has a part of every expert's width, and the whole router, of all tokens. Refuses fused experts.
  void split(const TensorSplit& over) override;
  void forward(const ForwardArgs& args, const TensorView& residual) const override;
  void backward(const BackwardArgs& args) const override;
  [[nodiscard]] SavedBytes saved_bytes(BatchShape shape, DType dtype) const override;
  [[nodiscard]] std::size_t workspace_bytes(BatchShape shape, DType dtype, Phase phase) const override;
  /// Of the router and K experts.
  [[nodiscard]] bool has_wanted(const Wanted& wanted) const override;
  [[nodiscard]] bool backward_reads_input(const Wanted& wanted) const override;
  [[nodiscard]] double recompute_flops(BatchShape shape, const RecomputeTask& what) const override;
  [[nodiscard]] double backward_flops(BatchShape shape, const Wanted& wanted) const override;

 private:
  struct Saved {         // all of it kept
    TensorView probs;    // (N, E) of stat_dtype, as weights and dweights
    TensorView experts;  // (N, K) int32
    TensorView weights;  // (N, K)
    TensorView gate_up;  // (N·K, 2·I): columns of gate, then of up; backward writes their gradients here
    TensorView product;  // (N·K, I), with BatchShape::saves_outputs
  };
  struct Scratch {
    kernels::Dispatch dispatch;
    TensorView rows;    // (N·K, C): the input of each row, then its expert's output
    TensorView inputs;  // (N·K, C): with weighed inputs, these again; backward
    /// (N·K, I): silu(gate)·up, or that of Saved; outside training in the columns of gate, if they are not interleaved.
    TensorView product;
    TensorView dproduct;  // (N·K, I); backward
    TensorView dlogits;   // (N, E); backward
    TensorView dweights;  // (N, K); backward
    TensorView lora;      // bytes: of the adapters, which use it in turn
    TensorView dprobs;    // (E) fp64; backward: gradient of the balance loss
  };
  /// Whether backward goes through silu(gate)·up: for dx, or for the weights of gate and up.
  [[nodiscard]] bool through_product(const Wanted& wanted) const {
    return wanted.dx() || gate_up_.has_wanted(wanted) || is_wanted(wanted, gate_up_bias_) ||
           (weighs_inputs_ && through_router(wanted));
  }
  /// Whether it goes through the router's probabilities.
  [[nodiscard]] bool through_router(const Wanted& wanted) const {
    return wanted.dx() || router_.has_wanted(wanted) || is_wanted(wanted, router_bias_);
  }
  [[nodiscard]] static bool is_wanted(const Wanted& wanted, int bias) { return bias >= 0 && wanted[bias]; }
  [[nodiscard]] TensorView gate(const TensorView& gate_up) const { return columns(gate_up, 0, hidden_); }
  [[nodiscard]] TensorView up(const TensorView& gate_up) const { return columns(gate_up, hidden_, hidden_); }
  [[nodiscard]] std::int64_t rows(BatchShape shape) const { return shape.batch * shape.tokens * top_k_; }
  [[nodiscard]] Saved saved(SavedAllocator& allocator, BatchShape shape, DType dtype) const;
  /// Chooses the experts of each token.
  void route(const ForwardArgs& args, const Saved& s, const Scratch& w) const;
  [[nodiscard]] Scratch scratch(ScratchAllocator& allocator, const TensorView& saved_product, BatchShape shape,
                                DType dtype, Phase phase) const;
  /// silu(gate)·up of `gate_up`, or what gpt-oss has in its place; and its gradients, from dproduct, over them.
  void activate(const TensorView& gate_up, const Scratch& w, StreamView stream) const;
  void activate_backward(const TensorView& gate_up, const Scratch& w, StreamView stream) const;
  /// y plus its groups' biases, if there are any.
  void add_bias(const ForwardArgs& args, int bias, const TensorView& offsets, const TensorView& y) const;
  /// Whether this rank adds the biases of the outputs: of a sum over ranks that have parts of the experts the first
  /// one.
  [[nodiscard]] bool has_down_bias(const Batch* batch) const {
    return down_bias_ >= 0 && (batch == nullptr || batch->tensor_rank == 0);
  }
  /// The gradients of the biases of the outputs, and what these add to dweights, from the rows of dy.
  void backward_down_bias(const BackwardArgs& args, const Saved& s, const Scratch& w) const;
  void backward_experts(const BackwardArgs& args, const Saved& s, const Scratch& w) const;
  /// Rows times their weights.
  void weigh_rows(const TensorView& rows, const Saved& s, const Scratch& w, StreamView stream) const;
  /// Its last part where inputs are weighed: from the gradients of gate and up, in s.gate_up, to those of the inputs,
  /// in w.rows, and dweights.
  void backward_weighed(const BackwardArgs& args, const Saved& s, const Scratch& w) const;
  [[nodiscard]] TensorView balance_gradient(const BackwardArgs& args, const Scratch& w) const;

  std::int64_t channels_, hidden_, top_k_;  // hidden_: of what a rank has
  kernels::ExpertWeights weigh_;
  bool weighs_inputs_;
  int layer_;
  double balance_;
  Linear router_;
  GroupedLinear gate_up_, down_;                               // of all experts
  bool fused_;                                                 // in one parameter
  std::optional<kernels::GateLimits> limits_;                  // with interleaved gate and up
  int router_bias_ = -1, gate_up_bias_ = -1, down_bias_ = -1;  // positions; -1: none
};

}  // namespace tessera::models
