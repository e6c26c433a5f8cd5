// SPDX-License-Identifier: Apache-2.0
#pragma once
// Head: the last module: final norm, projection to the vocabulary, and a loss that it is given. In training, forward
// does nothing and backward computes loss and gradients together, so that logits need not exist in full. The weight is
// its own, or the token embedding (tied).

#include <optional>

#include "models/lora_branch.hpp"
#include "models/loss.hpp"
#include "models/module.hpp"
#include "models/norm.hpp"

namespace tessera::models {

struct HeadSpec {
  NormSpec norm;
  std::int64_t vocab = 0, channels = 0;
  int tied_to = -1;    // index in the model of the (V, C) weight to share; -1: its own
  std::string weight;  // name of its own weight
  double std = 0.02;   // of its initial values
  kernels::LogitRules logits = {};
  std::shared_ptr<const Loss> loss = cross_entropy();
};

/// Makes logits of x·Wᵀ, in place.
void apply(const kernels::LogitRules& rules, const TensorView& logits, StreamView stream);

class Head final : public Module {
 public:
  Head(const HeadSpec& spec, std::vector<ParamSpec>& model) : Head(spec, ParamList(model)) {}

  [[nodiscard]] std::string name() const override { return "head"; }
  [[nodiscard]] std::span<const int> params() const override { return params_; }
  void adapt(AdapterMaker& adapters) override;
  [[nodiscard]] bool forward_reads_params(Phase phase) const override { return phase != Phase::train; }
  void forward(const ForwardArgs& args) const override;
  void backward(const BackwardArgs& args) const override;
  [[nodiscard]] std::size_t saved_bytes(BatchShape, DType) const override { return 0; }
  [[nodiscard]] std::size_t workspace_bytes(BatchShape shape, DType dtype, Phase phase) const override;
  /// For evaluation. Training does the forward work in backward; the sum of both is right.
  [[nodiscard]] double forward_flops(BatchShape shape) const override;
  [[nodiscard]] double backward_flops(BatchShape shape, const Wanted& wanted) const override;
  /// From now on a score of each sequence (reward models): the weight is one row, "score.weight" with initial values of
  /// this standard deviation, in the place of its own in `model`, or behind the others where it was tied. Before
  /// adapters are added. Returns the weight's index. The loss must be set after.
  int make_score(std::vector<ParamSpec>& model, double std);
  /// From now on the loss is this one; the plan must be made after.
  void set_loss(std::shared_ptr<const Loss> loss) { loss_ = std::move(loss); }

 private:
  Head(const HeadSpec& spec, ParamList list);

  struct Scratch {
    TensorView normed;       // (B·T, C); Phase::logits: (B, C)
    Norm::Saved statistics;  // train
    TensorView loss, norm;   // bytes; `norm` reuses the memory of `loss`
    LoraBranch::Half low;    // of an adapter, with a loss
    TensorView lora;         // of an adapter, without
  };
  [[nodiscard]] Scratch scratch(ScratchAllocator& allocator, BatchShape shape, DType dtype, Phase phase) const;
  void forward_loss(const ForwardArgs& args) const;
  void forward_logits(const ForwardArgs& args) const;

  std::int64_t vocab_, channels_;
  bool scores_ = false;
  Norm norm_;
  int weight_;
  std::optional<LoraBranch> lora_;
  kernels::LogitRules logits_;
  std::shared_ptr<const Loss> loss_;
  std::vector<int> params_;
};

}  // namespace tessera::models
