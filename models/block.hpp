#pragma once
// Block: a transformer block: attention and MLP, each in a residual branch.

#include "models/residual.hpp"

namespace tessera::models {

/// The parts of a block, in the order of its parameters.
struct BlockParts {
  std::string name;  // "h.3"
  std::int64_t channels = 0;
  std::vector<int> params;  // indices into Model::params
  Residual attention, mlp;
};

class Block final : public Module {
 public:
  explicit Block(BlockParts parts) : parts_(std::move(parts)) {}

  [[nodiscard]] std::string name() const override { return parts_.name; }
  [[nodiscard]] std::span<const int> params() const override { return parts_.params; }
  void forward(const ForwardArgs& args) const override;
  void backward(const BackwardArgs& args) const override;
  [[nodiscard]] std::size_t saved_bytes(BatchShape shape, DType dtype) const override;
  [[nodiscard]] std::size_t workspace_bytes(BatchShape shape, DType dtype, Phase phase) const override;
  [[nodiscard]] std::size_t cache_bytes(BatchShape capacity, DType dtype) const override {
    return parts_.attention.cache_bytes(capacity, dtype);
  }
  [[nodiscard]] double forward_flops(BatchShape shape) const override;
  [[nodiscard]] double backward_flops(BatchShape shape, const Wanted& wanted) const override;

 private:
  struct Saved {
    TensorView attention, mlp;  // bytes
    TensorView middle;          // (B·T, C): between the two
  };
  /// In Phase::train all of it lasts until backward; else the two branches use the same bytes in turn.
  [[nodiscard]] Saved saved(ScratchAllocator& allocator, BatchShape shape, DType dtype, Phase phase) const;
  /// Scratch that the two branches use in turn.
  [[nodiscard]] TensorView scratch(ScratchAllocator& allocator, BatchShape shape, DType dtype, Phase phase) const;

  BlockParts parts_;
};

}  // namespace tessera::models
