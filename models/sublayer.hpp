#pragma once
// Sublayer: f of a residual branch x + f(norm(x)): attention or an MLP. It works on rows (B·T, C) of a module's
// workspace.

#include "models/module.hpp"
#include "models/params.hpp"
#include "models/scratch_allocator.hpp"

namespace tessera::models {

class Sublayer {
 public:
  virtual ~Sublayer() = default;

  struct ForwardArgs {
    Phase phase = Phase::train;
    BatchShape shape;
    std::span<const TensorView> params;
    TensorView x;         // (B·T, C), normed
    TensorView residual;  // (B·T, C)
    TensorView y;         // (B·T, C): residual + f(x), added by the last GEMM of f; never the memory of residual
    TensorView saved;     // saved_bytes; outside training scratch of the same size
    TensorView workspace;
    const Batch* batch = nullptr;  // positions
    Cache cache;                   // Phase::logits only
    StreamView stream = host_stream;
  };
  virtual void forward(const ForwardArgs& args) const = 0;

  struct BackwardArgs {
    BatchShape shape;
    std::span<const TensorView> params;
    Gradients grads;
    TensorView x;   // (B·T, C), the forward's input
    TensorView dy;  // (B·T, C)
    TensorView dx;  // (B·T, C), overwritten; may be x
    TensorView saved, workspace;
    const Batch* batch = nullptr;
    StreamView stream = host_stream;
  };
  virtual void backward(const BackwardArgs& args) const = 0;

  [[nodiscard]] virtual std::size_t saved_bytes(BatchShape shape, DType dtype) const = 0;
  /// Phase::train: the larger of forward and backward.
  [[nodiscard]] virtual std::size_t workspace_bytes(BatchShape shape, DType dtype, Phase phase) const = 0;
  /// See Module::cache_bytes.
  [[nodiscard]] virtual std::size_t cache_bytes(BatchShape capacity, DType dtype) const {
    return (void)capacity, (void)dtype, std::size_t{0};
  }
  /// See Module::forward_flops.
  [[nodiscard]] virtual double forward_flops(BatchShape shape) const = 0;
};

}  // namespace tessera::models
