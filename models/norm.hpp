// SPDX-License-Identifier: Apache-2.0
#pragma once
// Norm: LayerNorm or RMSNorm, before a residual branch or the head.

#include <string>

#include "kernels/rms_norm.hpp"
#include "models/params.hpp"
#include "models/scratch_allocator.hpp"

namespace tessera::models {

struct NormSpec {
  enum class Kind : unsigned char { layer, rms };
  std::string prefix;  // names: prefix + ".weight", and for LayerNorm ".bias"
  std::int64_t channels = 0;
  double eps = 1e-5;
  Kind kind = Kind::layer;
  double weight_offset = kernels::no_weight_offset;  // of RMSNorm: 1, and the weight begins at 0
};

/// Initial values of a weight to which `offset` is added.
[[nodiscard]] inline Initializer norm_weight_init(double offset) {
  return {offset > 0 ? Initializer::Kind::zeros : Initializer::Kind::ones};
}

class Norm {
 public:
  Norm(const NormSpec& spec, ParamList& params);

  [[nodiscard]] std::int64_t channels() const { return channels_; }
  /// What backward needs besides x.
  struct Saved {
    TensorView mean, rstd;  // (N); RMSNorm has no mean
  };
  [[nodiscard]] Saved allocate(ScratchAllocator& allocator, std::int64_t rows, DType dtype) const {
    Saved saved;
    if (kind_ == NormSpec::Kind::layer) saved.mean = allocator.take(stat_dtype(dtype), {rows});
    saved.rstd = allocator.take(stat_dtype(dtype), {rows});
    return saved;
  }

  /// y = norm(x), (N, C); y may be x. `saved` absent: not wanted.
  void forward(std::span<const TensorView> params, const TensorView& x, const TensorView& y, const Saved& saved,
               StreamView stream) const;
  /// y again, bitwise equal.
  void recompute(std::span<const TensorView> params, const TensorView& x, const TensorView& y, const Saved& saved,
                 StreamView stream) const;

  struct BackwardArgs {
    std::span<const TensorView> params;
    Gradients grads;
    TensorView x, dy, dx;            // (N, C); dx may be dy; absent: not wanted
    Write write = Write::overwrite;  // add: dx already holds the residual's gradient
    Saved saved;
    TensorView workspace;  // workspace_bytes()
    StreamView stream = host_stream;
  };
  void backward(const BackwardArgs& args) const;
  [[nodiscard]] std::size_t workspace_bytes(DType dtype, Device device = host_device) const;
  /// Whether the gradient of the weight or the bias is wanted.
  [[nodiscard]] bool has_wanted(const Wanted& wanted) const { return wanted[weight_] || (bias_ >= 0 && wanted[bias_]); }

 private:
  std::int64_t channels_;
  double eps_, weight_offset_;
  NormSpec::Kind kind_;
  int weight_, bias_ = -1;  // -1: none

  void backward_layer(const BackwardArgs& args) const;
};

}  // namespace tessera::models
