// SPDX-License-Identifier: Apache-2.0
#pragma once
// Block: residual branches in a row. A transformer block has two, attention and MLP. A layer whose parts are separate
// shard units is two blocks of one branch each: attention, and a mixture of experts.

#include "models/residual.hpp"

namespace tessera::models {

/// The parts of a block, in the order of its parameters.
struct BlockParts {
  std::string name;   // "h.3", "layers.3.experts"
  std::string group;  // see Module::group
  std::int64_t channels = 0;
  std::vector<int> params = {};          // indices into Model::params
  std::vector<Residual> residuals = {};  // one or two; only the first may have a cache
};

class Block final : public Module {
 public:
  explicit Block(BlockParts parts);

  [[nodiscard]] std::string name() const override { return parts_.name; }
  [[nodiscard]] std::string group() const override { return parts_.group; }
  [[nodiscard]] std::span<const int> params() const override { return parts_.params; }
  void adapt(AdapterMaker& adapters) override {
    adapters.begin(parts_.params);
    for (Residual& residual : parts_.residuals) residual.adapt(adapters);
  }
  [[nodiscard]] std::string context_refusal(ContextShare share) const override;
  void set_context(ContextShare share) override;
  void split(const TensorSplit& over) override;
  /// Those of the first branch; the second one is in the last. Of branches that are split those of all: the last of one
  /// and the first of the next are one stage.
  [[nodiscard]] ModuleStages stages(Phase phase) const override;
  [[nodiscard]] std::size_t value_bytes(int value, BatchShape shape, DType dtype) const override;
  [[nodiscard]] std::size_t value_gradient_bytes(int value, BatchShape shape, DType dtype) const override;
  void forward(const ForwardArgs& args) const override;
  void backward(const BackwardArgs& args) const override;
  [[nodiscard]] std::size_t saved_bytes(BatchShape shape, DType dtype) const override {
    return split_saved_bytes(shape, dtype).total();
  }
  [[nodiscard]] SavedBytes split_saved_bytes(BatchShape shape, DType dtype) const override;
  [[nodiscard]] std::size_t workspace_bytes(BatchShape shape, DType dtype, Phase phase) const override;
  [[nodiscard]] std::size_t cache_bytes(CacheShape capacity, DType dtype) const override {
    return parts_.residuals.front().cache_bytes(capacity, dtype);
  }
  [[nodiscard]] double forward_flops(BatchShape shape) const override;
  [[nodiscard]] double recompute_flops(BatchShape shape, bool keeps) const override;
  [[nodiscard]] double backward_flops(BatchShape shape, const Wanted& wanted) const override;

 private:
  struct Saved {
    SavedAllocator::Memory residuals[2];
    TensorView middle;  // (B·T, C): between the two
  };
  [[nodiscard]] Saved saved(SavedAllocator& allocator, BatchShape shape, DType dtype) const;
  /// The same outside training: the branches use the same bytes in turn.
  [[nodiscard]] Saved unsaved(ScratchAllocator& allocator, BatchShape shape, DType dtype) const;
  /// Scratch that the branches use in turn.
  [[nodiscard]] TensorView scratch(ScratchAllocator& allocator, BatchShape shape, DType dtype, Phase phase) const;
  /// Whether branch i computes the gradient of its input, for the block's dx or for the parameters before it.
  [[nodiscard]] bool computes_dx(int i, const Wanted& wanted) const;

  [[nodiscard]] bool is_split() const { return parts_.residuals.front().is_split(); }
  /// The stage of branch i that a stage of the block runs; below 0: none. The last stage of one branch is the first of
  /// the next.
  [[nodiscard]] int stage_of(int i, int stage) const;
  [[nodiscard]] std::span<const TensorView> values_of(int i, std::span<const TensorView> values) const;
  /// The branch of a value of one that is split, and the value's number there.
  [[nodiscard]] std::pair<const Residual&, int> branch_of(int value) const {
    const int first = parts_.residuals.front().num_values();
    if (value < first) return {parts_.residuals.front(), value};
    return {parts_.residuals.back(), value - first};
  }

  BlockParts parts_;
  int last_stage_ = 0;
};

}  // namespace tessera::models
