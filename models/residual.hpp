// SPDX-License-Identifier: Apache-2.0
#pragma once
// Residual: y = x + f(norm(x)) for any sublayer f. Two of them make a transformer block.

#include <memory>

#include "models/norm.hpp"
#include "models/sublayer.hpp"

namespace tessera::models {

class Residual {
 public:
  /// The sublayer's parameters must follow the norm's in the module.
  Residual(Norm norm, std::unique_ptr<Sublayer> sublayer) : norm_(norm), sublayer_(std::move(sublayer)) {}

  void adapt(AdapterMaker& adapters) { sublayer_->adapt(adapters); }
  void set_context_ranks(int ranks) { sublayer_->set_context_ranks(ranks); }
  /// Those of the sublayer. In backward every stage is given dy, the gradient of y.
  [[nodiscard]] ModuleStages stages() const { return sublayer_->stages(); }
  [[nodiscard]] std::size_t value_bytes(int value, BatchShape shape, DType dtype) const {
    return sublayer_->value_bytes(value, shape, dtype);
  }
  /// x and y are rows (B·T, C); `saved`: see Sublayer.
  void forward(const ForwardArgs& args) const;
  /// x, dy and dx are rows (B·T, C); dx may be dy. dx and dparams may be absent, as in Module::backward.
  void backward(const BackwardArgs& args) const;

  [[nodiscard]] SavedBytes saved_bytes(BatchShape shape, DType dtype) const;
  [[nodiscard]] std::size_t workspace_bytes(BatchShape shape, DType dtype, Phase phase) const;
  [[nodiscard]] std::size_t cache_bytes(BatchShape capacity, DType dtype) const {
    return sublayer_->cache_bytes(capacity, dtype);
  }
  /// Whether the gradient of one of its parameters is wanted.
  [[nodiscard]] bool has_wanted(const Wanted& wanted) const {
    return norm_.has_wanted(wanted) || sublayer_->has_wanted(wanted);
  }
  [[nodiscard]] double forward_flops(BatchShape shape) const { return sublayer_->forward_flops(shape); }
  /// See Sublayer.
  [[nodiscard]] double recompute_flops(BatchShape shape, const RecomputeTask& what) const {
    return sublayer_->recompute_flops(shape, what);
  }
  [[nodiscard]] double backward_flops(BatchShape shape, const Wanted& wanted) const {
    return sublayer_->backward_flops(shape, wanted.with_dx(wanted.dx() || norm_.has_wanted(wanted)));
  }

 private:
  struct Saved {
    Norm::Saved norm;
    TensorView normed;  // with BatchShape::saves_outputs
    SavedAllocator::Memory sublayer;
  };
  struct Scratch {
    TensorView normed;          // (B·T, C), or that of Saved; in backward later its gradient
    TensorView sublayer, norm;  // bytes; `norm` reuses the memory of `sublayer`
  };
  [[nodiscard]] Saved saved(SavedAllocator& allocator, BatchShape shape, DType dtype) const;
  [[nodiscard]] Scratch scratch(ScratchAllocator& allocator, const TensorView& saved_normed, BatchShape shape,
                                DType dtype, Phase phase) const;

  Norm norm_;
  std::unique_ptr<Sublayer> sublayer_;
};

}  // namespace tessera::models
