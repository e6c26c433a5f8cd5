#pragma once
// Norm: the normalisation in front of a residual branch or of the head. LayerNorm today.

#include <string>

#include "models/carver.hpp"
#include "models/params.hpp"

namespace tessera::models {

struct NormSpec {
  std::string prefix;  // names are prefix + ".weight" and ".bias"
  std::int64_t channels = 0;
  double eps = 1e-5;
};

class Norm {
 public:
  Norm(const NormSpec& spec, ParamList& params);

  /// What backward needs beside x.
  struct Saved {
    TensorView mean, rstd;  // (N)
  };
  [[nodiscard]] static Saved carve(Carver& carver, std::int64_t rows, DType dtype) {
    return {carver.take(dtype, {rows}), carver.take(dtype, {rows})};
  }

  /// y = norm(x), (N, C); y may be x. `saved` absent: not wanted.
  void forward(std::span<const TensorView> params, const TensorView& x, const TensorView& y, const Saved& saved,
               StreamView stream) const;
  /// y again, the same bits.
  void recompute(std::span<const TensorView> params, const TensorView& x, const TensorView& y, const Saved& saved,
                 StreamView stream) const;

  struct BackwardArgs {
    std::span<const TensorView> params;
    Gradients grads;
    TensorView x, dy, dx;  // (N, C); dx may be dy
    Write write = Write::overwrite;  // add: dx already holds the residual's gradient
    Saved saved;
    TensorView workspace;  // workspace_bytes()
    StreamView stream = host_stream;
  };
  void backward(const BackwardArgs& args) const;
  [[nodiscard]] std::size_t workspace_bytes(DType dtype) const;

 private:
  std::int64_t channels_;
  double eps_;
  int weight_, bias_;
};

}  // namespace tessera::models
