// SPDX-License-Identifier: Apache-2.0
#pragma once
// Residual: y = x + post(f(norm(x))) for any sublayer f, with either norm or both. Two of them make a transformer
// block. Where ranks have parts of the sublayer's matrices it has three stages: the norm, of this rank's tokens; the
// sublayer, of all tokens; and the addition to x, of this rank's. Its values are 0 the norm's output, or x without one,
// 1 that of all tokens, 2 the sublayer's output before it is summed over the ranks, and 3 the sum, of this rank's
// tokens. A sublayer with stages has these in the place of the second one, and its values follow.

#include <memory>
#include <optional>

#include "models/norm.hpp"
#include "models/sublayer.hpp"
#include "models/tensor_stages.hpp"

namespace tessera::models {

class Residual {
 public:
  /// norm: of x; post: of the sublayer's output. One of them at least.
  Residual(std::optional<Norm> norm, std::unique_ptr<Sublayer> sublayer, std::optional<Norm> post = {})
      : norm_(norm), post_(post), sublayer_(std::move(sublayer)) {
    TESSERA_ASSERT(norm_ || post_);
  }

  void adapt(AdapterMaker& adapters) { sublayer_->adapt(adapters); }
  /// See Module.
  [[nodiscard]] std::string context_refusal(ContextShare share) const;
  void set_context(ContextShare share);
  /// Throws Error (usage): what the sublayer refuses.
  void split(const TensorSplit& over);
  [[nodiscard]] bool is_split() const { return tensor_ranks_ > 1; }
  [[nodiscard]] int num_values() const { return own_values + inner_values_; }  // of one that is split
  [[nodiscard]] int num_stages() const { return 2 + inner_stages_; }           // the same
  /// Those of the sublayer, or its own. In backward every stage is given dy, the gradient of y.
  [[nodiscard]] ModuleStages stages() const;
  [[nodiscard]] std::size_t value_bytes(int value, BatchShape shape, DType dtype) const;
  [[nodiscard]] std::size_t value_gradient_bytes(int value, BatchShape shape, DType dtype) const;
  /// x and y are rows (B·T, C); `saved`: see Sublayer. If it is split, y may be x.
  void forward(const ForwardArgs& args) const;
  /// x, dy and dx are rows (B·T, C); dx may be dy. dx and dparams may be absent, as in Module::backward.
  void backward(const BackwardArgs& args) const;

  [[nodiscard]] SavedBytes saved_bytes(BatchShape shape, DType dtype) const;
  [[nodiscard]] std::size_t workspace_bytes(BatchShape shape, DType dtype, Phase phase) const;
  [[nodiscard]] std::size_t cache_bytes(CacheShape capacity, DType dtype) const {
    return sublayer_->cache_bytes(capacity, dtype);
  }
  /// Whether the gradient of one of its parameters is wanted.
  [[nodiscard]] bool has_wanted(const Wanted& wanted) const {
    return norm_wanted(wanted) || (post_ && post_->has_wanted(wanted)) || sublayer_->has_wanted(wanted);
  }
  [[nodiscard]] double forward_flops(BatchShape shape) const { return sublayer_->forward_flops(all_tokens(shape)); }
  /// See Sublayer.
  [[nodiscard]] double recompute_flops(BatchShape shape, const RecomputeTask& what) const {
    return sublayer_->recompute_flops(all_tokens(shape), {what.keeps, post_ ? !what.keeps : what.writes_y});
  }
  [[nodiscard]] double backward_flops(BatchShape shape, const Wanted& wanted) const {
    return sublayer_->backward_flops(all_tokens(shape), wanted.with_dx(wanted.dx() || norm_wanted(wanted)));
  }

 private:
  struct Saved {
    Norm::Saved norm;
    TensorView normed;  // with BatchShape::saves_outputs
    Norm::Saved post;
    TensorView inner;  // (B·T, C), the sublayer's output, with a post norm
    SavedAllocator::Memory sublayer;
  };
  struct Scratch {
    /// (B·T, C), or that of Saved; in backward later the gradient of the sublayer's input. If it is split: a sum over
    /// the ranks in the activations' type, or with a post norm its output.
    TensorView normed;
    TensorView dinner;          // (B·T, C), the gradient of `inner`
    TensorView sublayer, norm;  // bytes; `norm` reuses the memory of `sublayer`
  };
  [[nodiscard]] Saved saved(SavedAllocator& allocator, BatchShape shape, DType dtype) const;
  [[nodiscard]] Scratch scratch(ScratchAllocator& allocator, const TensorView& saved_normed, BatchShape shape,
                                DType dtype, Phase phase) const;

  [[nodiscard]] std::int64_t channels() const { return (norm_ ? norm_ : post_)->channels(); }
  /// Of the sublayer's stages: a norm after it reads what the last one writes.
  [[nodiscard]] bool is_last(int stage) const { return stage + 1 == inner_stages_; }
  [[nodiscard]] bool norm_wanted(const Wanted& wanted) const { return norm_ && norm_->has_wanted(wanted); }
  /// The gradient of x that came through the sublayer, `w.normed`, is added to dy in dx.
  void add_input_gradient(const BackwardArgs& args, const Saved& s, const Scratch& w) const;

  // residual_stages.cpp
  /// The shape of all ranks' tokens, which the sublayer works on.
  [[nodiscard]] BatchShape all_tokens(BatchShape shape) const { return models::all_tokens(shape, tensor_ranks_); }
  void forward_stage(const ForwardArgs& args) const;
  void backward_stage(const BackwardArgs& args) const;
  static constexpr int own_values = 4;

  int tensor_ranks_ = 1;
  int inner_stages_ = 1, inner_values_ = 0;  // of the sublayer; one stage if it has none
  std::optional<Norm> norm_, post_;
  std::unique_ptr<Sublayer> sublayer_;
};

}  // namespace tessera::models
