// SPDX-License-Identifier: Apache-2.0
#pragma once
// Head: the last module: final norm, projection to the vocabulary, and a loss that it is given. In training, forward
// does nothing and backward computes loss and gradients together, so that logits need not exist in full. The weight is
// its own, or the token embedding (tied). Where ranks have parts of the vocabulary it has three stages
// (head_stages.cpp): the norm, of this rank's tokens; what the logits of this rank's part say of all ranks' tokens
// (TokenStatistics; in generation the logits themselves); and the loss of this rank's tokens from what all parts say.
// Its values are 0 the norm's output, 1 that of all tokens, 2 the statistics of this part, 3 those of all parts, of
// this rank's tokens.
//
// As the last module it also sums the routing statistics of a mixture of experts over the ranks that share rows
// (head_router.cpp): in training it has two stages at least, and the last two values are the statistics of this rank
// and those of all ranks, which have no gradient.

#include <optional>

#include "models/lora_branch.hpp"
#include "models/loss.hpp"
#include "models/module.hpp"
#include "models/norm.hpp"
#include "models/tensor_stages.hpp"
#include "models/vocabulary_parts.hpp"

namespace tessera::models {

struct HeadSpec {
  NormSpec norm;
  std::int64_t vocab = 0, channels = 0;
  int tied_to = -1;    // index in the model of the (V, C) weight to share; -1: its own
  std::string weight;  // name of its own weight
  double std = 0.02;   // of its initial values
  kernels::LogitRules logits = {};
  std::shared_ptr<const Loss> loss = cross_entropy();
  std::int64_t router = 0;  // RouterInfo::num_statistics
};

/// Makes logits of x·Wᵀ, in place.
void apply(const kernels::LogitRules& rules, const TensorView& logits, StreamView stream);

class Head final : public Module {
 public:
  Head(const HeadSpec& spec, std::vector<ParamSpec>& model) : Head(spec, ParamList(model)) {}

  [[nodiscard]] std::string name() const override { return "head"; }
  [[nodiscard]] std::span<const int> params() const override { return params_; }
  void adapt(AdapterMaker& adapters) override;
  [[nodiscard]] bool forward_reads_params(Phase phase) const override {
    return phase != Phase::train || vocabulary_.is_split();
  }
  void set_context(ContextShare share) override { context_ranks_ = share.ranks; }
  void split(const TensorSplit& over) override;
  [[nodiscard]] ModuleStages stages(Phase phase) const override;
  [[nodiscard]] std::size_t value_bytes(int value, BatchShape shape, DType dtype) const override;
  [[nodiscard]] std::size_t value_gradient_bytes(int value, BatchShape shape, DType dtype) const override;
  void forward(const ForwardArgs& args) const override;
  void backward(const BackwardArgs& args) const override;
  /// Where it has stages, what the norm's backward needs.
  [[nodiscard]] std::size_t saved_bytes(BatchShape shape, DType dtype) const override;
  [[nodiscard]] std::size_t workspace_bytes(BatchShape shape, DType dtype, Phase phase) const override;
  /// For evaluation. Training does the forward work in backward, or in stages twice; the sum of both is right.
  [[nodiscard]] double forward_flops(BatchShape shape) const override;
  /// Logits of a part of the vocabulary: its loss needs the statistics of all parts.
  [[nodiscard]] double repeated_flops(BatchShape shape) const override {
    return vocabulary_.is_split() ? forward_flops(shape) : 0.0;
  }
  [[nodiscard]] double backward_flops(BatchShape shape, const Wanted& wanted) const override;
  /// From now on a score of each sequence (reward models): the weight is one row, "score.weight" with initial values of
  /// this standard deviation, in the place of its own in `model`, or behind the others where it was tied. Before
  /// adapters are added. Returns the weight's index. The loss must be set after.
  int make_score(std::vector<ParamSpec>& model, double std);
  /// From now on the loss is this one; the plan must be made after.
  void set_loss(std::shared_ptr<const Loss> loss) {
    TESSERA_ASSERT(!vocabulary_.is_split(), "another loss for parts of a vocabulary");
    loss_ = std::move(loss);
  }

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
  /// The norm's output of each row's last token.
  void normalize_last(const ForwardArgs& args, const TensorView& normed) const;

  // head_router.cpp
  [[nodiscard]] bool counts_router() const { return router_ > 0 && (context_ranks_ > 1 || vocabulary_.is_split()); }
  [[nodiscard]] bool sums_router() const { return router_ > 0 && context_ranks_ > 1; }
  /// The value of this rank's statistics; the next one is of all ranks'.
  [[nodiscard]] int router_value() const { return vocabulary_.is_split() ? 4 : 0; }
  void add_router_exchange(ModuleStages& stages) const;
  [[nodiscard]] std::size_t router_bytes(int value, BatchShape shape) const;
  void pass_router(const ForwardArgs& args) const;

  // head_stages.cpp
  struct StageScratch {
    LoraBranch::Half low;      // of all tokens
    TensorView loss, lora;     // bytes
    TensorView dnormed, norm;  // (B·T, C), a sum over the ranks rounded; bytes
  };
  [[nodiscard]] ModuleStages vocabulary_stages() const;
  [[nodiscard]] StageScratch stage_scratch(ScratchAllocator& allocator, BatchShape shape, DType dtype,
                                           Phase phase) const;
  void forward_stage(const ForwardArgs& args) const;
  void backward_stage(const BackwardArgs& args) const;
  void part_of_logits(const ForwardArgs& args, const StageScratch& w) const;
  void collect_logits(const ForwardArgs& args) const;
  void gradients_of_part(const BackwardArgs& args) const;
  /// Tokens of this rank, and of all together; in generation the rows whose last tokens count.
  [[nodiscard]] std::int64_t own_rows(BatchShape shape) const {
    return shape.whole ? shape.batch : shape.batch * shape.tokens;
  }
  [[nodiscard]] std::int64_t all_rows(BatchShape shape) const {
    return shape.whole ? shape.batch : shape.batch * shape.tokens * vocabulary_.ranks;
  }
  /// The linear_cross_entropy of this rank's part, for all tokens.
  [[nodiscard]] kernels::LinearCrossEntropyArgs part_args(const Batch& batch, std::span<const TensorView> params,
                                                          const TensorView& x, const StageScratch& w) const;

  VocabularyParts vocabulary_;
  int context_ranks_ = 1;
  std::int64_t router_;
  std::int64_t channels_;
  bool scores_ = false;
  Norm norm_;
  int weight_;
  std::optional<LoraBranch> lora_;
  kernels::LogitRules logits_;
  std::shared_ptr<const Loss> loss_;
  std::vector<int> params_;
};

}  // namespace tessera::models
