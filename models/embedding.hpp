// SPDX-License-Identifier: Apache-2.0
#pragma once
// Embedding: the first module: token embedding, and learned positions (absent in families with RoPE). Where ranks have
// parts of the vocabulary it has two stages: the lookup of all ranks' tokens in this rank's part, which leaves 0 for
// those of others; and, after the sum over the ranks, what is done with this rank's tokens.

#include <optional>

#include "models/embedding_branch.hpp"
#include "models/module.hpp"
#include "models/params.hpp"
#include "models/tensor_stages.hpp"
#include "models/vocabulary_parts.hpp"

namespace tessera::models {

struct EmbeddingSpec {
  std::string tokens;     // name of the token embedding (V, C)
  std::string positions;  // name of the position embedding (P, C); empty: none
  std::int64_t vocab = 0, max_tokens = 0, channels = 0;
  double std = 0.02;  // of initial values
  double scale = 1;   // factor of the output, in the activations' type
};

class Embedding final : public Module {
 public:
  Embedding(const EmbeddingSpec& spec, std::vector<ParamSpec>& model);

  [[nodiscard]] std::string name() const override { return "embed"; }
  [[nodiscard]] std::span<const int> params() const override { return params_; }
  [[nodiscard]] bool backward_reads_params() const override { return lora_.has_value(); }
  void adapt(AdapterMaker& adapters) override;
  void split(const TensorSplit& over) override;
  [[nodiscard]] ModuleStages stages(Phase phase) const override;
  [[nodiscard]] std::size_t value_bytes(int value, BatchShape shape, DType dtype) const override;
  [[nodiscard]] std::size_t value_gradient_bytes(int value, BatchShape shape, DType dtype) const override;
  void forward(const ForwardArgs& args) const override;
  void backward(const BackwardArgs& args) const override;
  [[nodiscard]] std::size_t saved_bytes(BatchShape, DType) const override { return 0; }
  [[nodiscard]] std::size_t workspace_bytes(BatchShape shape, DType dtype, Phase phase) const override;
  /// A lookup has no matrix products; an adapter has one.
  [[nodiscard]] double forward_flops(BatchShape shape) const override;
  [[nodiscard]] double backward_flops(BatchShape shape, const Wanted& wanted) const override;

 private:
  /// Of the ids and positions of the batch, into y (B, T, C).
  void look_up(const ForwardArgs& args, const Batch& batch, const TensorView& y) const;
  void backward_tokens(const BackwardArgs& args, const Batch& batch, const TensorView& dy) const;
  void backward_positions(const BackwardArgs& args) const;
  [[nodiscard]] Shape rows_shape(BatchShape shape) const {
    shape = all_tokens(shape, vocabulary_.ranks);
    return {shape.batch, shape.tokens, channels_};
  }

  std::vector<int> params_;
  int tokens_, positions_ = -1;
  VocabularyParts vocabulary_;
  std::int64_t channels_;
  double scale_;
  std::optional<EmbeddingBranch> lora_;
};

}  // namespace tessera::models
