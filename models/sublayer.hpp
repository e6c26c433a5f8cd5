// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sublayer: f of a residual branch x + f(norm(x)): attention or an MLP. It works on rows (B·T, C) of a module's
// workspace.

#include "models/module.hpp"
#include "models/params.hpp"
#include "models/saved_allocator.hpp"

namespace tessera::models {

/// What forward has to write with ForwardArgs::recompute.
struct RecomputeTask {
  bool keeps = false;     // ForwardArgs::kept: the kept tensors are there
  bool writes_y = false;  // ForwardArgs::writes_y
};

class Sublayer {
 public:
  virtual ~Sublayer() = default;

  /// See Module::adapt.
  virtual void adapt(AdapterMaker& adapters) = 0;
  /// See Module.
  [[nodiscard]] virtual std::string context_refusal(ContextShare share) const { return (void)share, std::string(); }
  virtual void set_context(ContextShare share) { (void)share; }
  /// See Module. It then is one rank's part of the sublayer, of all tokens: y is to be summed over the ranks, and so is
  /// dx. By default it refuses.
  virtual void split(const TensorSplit& over);
  [[nodiscard]] virtual ModuleStages stages() const { return {}; }
  [[nodiscard]] virtual std::size_t value_bytes(int value, BatchShape shape, DType dtype) const {
    return (void)value, (void)shape, (void)dtype, std::size_t{0};
  }
  [[nodiscard]] virtual std::size_t value_gradient_bytes(int value, BatchShape shape, DType dtype) const {
    return value_bytes(value, shape, dtype);
  }
  /// y = residual + f(x), added by the last GEMM of f. x, y and `residual` are rows (B·T, C); x is normed, y never the
  /// memory of residual, but of MoeMlp. Of one that is split there is no residual. `saved` and `kept` have saved_bytes;
  /// outside training `saved` is scratch of the same size. Of one with stages, the first reads x, and the last adds the
  /// residual and writes y.
  virtual void forward(const ForwardArgs& args, const TensorView& residual) const = 0;
  /// x, dy and dx are rows (B·T, C); dx is overwritten and may be x, never dy. dx and dparams may be absent, as in
  /// Module::backward, but dy is not overwritten. Of one with stages, the last reads dy, and the first reads x and
  /// writes dx.
  virtual void backward(const BackwardArgs& args) const = 0;

  /// What it saves for backward, in the memory of a SavedAllocator.
  [[nodiscard]] virtual SavedBytes saved_bytes(BatchShape shape, DType dtype) const = 0;
  /// Phase::train: the larger of forward and backward.
  [[nodiscard]] virtual std::size_t workspace_bytes(BatchShape shape, DType dtype, Phase phase) const = 0;
  /// See Module::cache_bytes.
  [[nodiscard]] virtual std::size_t cache_bytes(CacheShape capacity, DType dtype) const {
    return (void)capacity, (void)dtype, std::size_t{0};
  }
  /// Whether the gradient of one of its parameters is wanted.
  [[nodiscard]] virtual bool has_wanted(const Wanted& wanted) const = 0;
  /// Whether backward reads x, for the gradients of weights. If not, x may hold anything.
  [[nodiscard]] virtual bool backward_reads_input(const Wanted& wanted) const = 0;
  /// See Module::forward_flops.
  [[nodiscard]] double forward_flops(BatchShape shape) const {
    return recompute_flops(shape, {.keeps = false, .writes_y = true});
  }
  /// FLOPs of forward with ForwardArgs::recompute.
  [[nodiscard]] virtual double recompute_flops(BatchShape shape, const RecomputeTask& what) const = 0;
  /// See Module::backward_flops.
  [[nodiscard]] virtual double backward_flops(BatchShape shape, const Wanted& wanted) const = 0;
};

}  // namespace tessera::models
