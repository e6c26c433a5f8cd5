// SPDX-License-Identifier: Apache-2.0
#pragma once
// The MLP as a sublayer: down(f(gate(x))·up(x)), f SiLU (SwiGLU, of Llama and others) or GELU (GeGLU, of Gemma); or
// without a gate down(gelu(up(x))), of GPT-2.

#include <optional>

#include "kernels/swiglu.hpp"
#include "models/fused_linears.hpp"
#include "models/sublayer.hpp"

namespace tessera::models {

struct MlpSpec {
  std::vector<LinearSpec> up;  // in C; of a gated one two: gate, up, or one with outputs gate | up
  LinearSpec down;             // in I, out C
  std::optional<kernels::GateActivation> gate = {};  // f; absent: no gate
};

class Mlp final : public Sublayer {
 public:
  Mlp(const MlpSpec& spec, ParamList& params);

  void adapt(AdapterMaker& adapters) override {
    up_.adapt(adapters);
    down_.adapt(adapters);
  }
  void split(const TensorSplit& over) override;
  void forward(const ForwardArgs& args, const TensorView& residual) const override;
  void backward(const BackwardArgs& args) const override;
  [[nodiscard]] SavedBytes saved_bytes(BatchShape shape, DType dtype) const override;
  [[nodiscard]] std::size_t workspace_bytes(BatchShape shape, DType dtype, Phase phase) const override;
  [[nodiscard]] bool has_wanted(const Wanted& wanted) const override;
  [[nodiscard]] bool backward_reads_input(const Wanted& wanted) const override;
  [[nodiscard]] double recompute_flops(BatchShape shape, const RecomputeTask& what) const override;
  [[nodiscard]] double backward_flops(BatchShape shape, const Wanted& wanted) const override;

 private:
  struct Saved {
    TensorView hidden;   // (B·T, I), or columns gate | up: (B·T, 2·I)
    TensorView product;  // (B·T, I), what down reads: with BatchShape::saves_outputs
  };
  [[nodiscard]] Saved saved(SavedAllocator& allocator, BatchShape shape, DType dtype) const;
  /// Whether backward goes through the activation: for dx, or for the parameters of gate and up.
  [[nodiscard]] bool through_product(const Wanted& wanted) const { return wanted.dx() || up_.has_wanted(wanted); }
  [[nodiscard]] TensorView take_lora(ScratchAllocator& allocator, BatchShape shape, DType dtype) const {
    const std::int64_t rows = shape.batch * shape.tokens;
    return allocator.take_bytes(
        std::max(up_.lora_workspace_bytes(rows, dtype), down_.lora_workspace_bytes(rows, dtype)));
  }
  [[nodiscard]] TensorView take_product(ScratchAllocator& allocator, BatchShape shape, DType dtype) const {
    return allocator.take(dtype, {shape.batch * shape.tokens, down_.in()});
  }
  [[nodiscard]] TensorView gate(const TensorView& hidden) const { return columns(hidden, 0, down_.in()); }
  [[nodiscard]] TensorView up(const TensorView& hidden) const { return columns(hidden, down_.in(), down_.in()); }
  /// `stride`: of the rows of `product`; 0: contiguous.
  void activate(const TensorView& hidden, const TensorView& product, std::int64_t stride, StreamView stream) const;

  FusedLinears up_;
  Linear down_;
  std::optional<kernels::GateActivation> gate_;
};

}  // namespace tessera::models
