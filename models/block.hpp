#pragma once
// Block: a transformer block, attention and MLP each in a residual branch of its own.

#include "models/residual.hpp"

namespace tessera::models {

/// What a block is put together from, in the order of its parameters.
struct BlockParts {
  std::string name;  // "h.3"
  std::int64_t channels = 0;
  std::vector<int> params;  // indices into the model's
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
  [[nodiscard]] std::size_t cache_bytes(BatchShape room, DType dtype) const override {
    return parts_.attention.cache_bytes(room, dtype);
  }
  [[nodiscard]] double forward_flops(BatchShape shape) const override;

 private:
  struct Saved {
    TensorView attention, mlp;  // bytes
    TensorView middle;          // (B·T, C): between the two
  };
  /// Phase::train: all of it lasts until backward. Otherwise the two branches take turns in the same bytes.
  [[nodiscard]] Saved saved(ScratchAllocator& carver, BatchShape shape, DType dtype, Phase phase) const;
  /// Bytes that the two branches use in turn.
  [[nodiscard]] TensorView scratch(ScratchAllocator& carver, BatchShape shape, DType dtype, Phase phase) const;

  BlockParts parts_;
};

}  // namespace tessera::models
