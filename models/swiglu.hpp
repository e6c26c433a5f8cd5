// SPDX-License-Identifier: Apache-2.0
#pragma once
// The gated MLP as a sublayer: down(f(gate(x))·up(x)), f SiLU (SwiGLU, of Llama and others) or GELU (GeGLU, of Gemma).

#include "kernels/swiglu.hpp"
#include "models/fused_linears.hpp"
#include "models/sublayer.hpp"

namespace tessera::models {

struct SwigluMlpSpec {
  std::vector<LinearSpec> gate_up;  // in C; one with outputs gate | up, or two: gate, up
  LinearSpec down;                  // in I, out C
  kernels::GateActivation activation = kernels::GateActivation::silu;
};

class SwigluMlp final : public Sublayer {
 public:
  SwigluMlp(const SwigluMlpSpec& spec, ParamList& params);

  void adapt(AdapterMaker& adapters) override {
    gate_up_.adapt(adapters);
    down_.adapt(adapters);
  }
  void split(const TensorSplit& over) override;
  void forward(const ForwardArgs& args, const TensorView& residual) const override;
  void backward(const BackwardArgs& args) const override;
  [[nodiscard]] SavedBytes saved_bytes(BatchShape shape, DType dtype) const override;
  [[nodiscard]] std::size_t workspace_bytes(BatchShape shape, DType dtype, Phase phase) const override;
  [[nodiscard]] bool has_wanted(const Wanted& wanted) const override;
  [[nodiscard]] bool backward_reads_input(const Wanted& wanted) const override;
  [[nodiscard]] double forward_flops(BatchShape shape) const override {
    return recompute_flops(shape, {.keeps = false, .writes_y = true});
  }
  [[nodiscard]] double recompute_flops(BatchShape shape, const RecomputeTask& what) const override;
  [[nodiscard]] double backward_flops(BatchShape shape, const Wanted& wanted) const override;

 private:
  /// Whether backward goes through silu(gate)·up: for dx, or for the parameters of gate and up.
  [[nodiscard]] bool through_product(const Wanted& wanted) const { return wanted.dx() || gate_up_.has_wanted(wanted); }
  [[nodiscard]] TensorView take_lora(ScratchAllocator& allocator, BatchShape shape, DType dtype) const {
    const std::int64_t rows = shape.batch * shape.tokens;
    return allocator.take_bytes(
        std::max(gate_up_.lora_workspace_bytes(rows, dtype), down_.lora_workspace_bytes(rows, dtype)));
  }
  /// (B·T, 2·I), columns gate | up
  [[nodiscard]] TensorView take_gate_up(ScratchAllocator& allocator, BatchShape shape, DType dtype) const {
    return allocator.take(dtype, {shape.batch * shape.tokens, gate_up_.out()});
  }
  struct Saved {
    TensorView gate_up, product;  // product: with BatchShape::saves_outputs
  };
  [[nodiscard]] Saved saved(SavedAllocator& allocator, BatchShape shape, DType dtype) const;
  /// (B·T, I)
  [[nodiscard]] TensorView take_hidden(ScratchAllocator& allocator, BatchShape shape, DType dtype) const {
    return allocator.take(dtype, {shape.batch * shape.tokens, down_.in()});
  }
  [[nodiscard]] TensorView gate(const TensorView& gate_up) const { return columns(gate_up, 0, down_.in()); }
  [[nodiscard]] TensorView up(const TensorView& gate_up) const { return columns(gate_up, down_.in(), down_.in()); }

  FusedLinears gate_up_;
  Linear down_;
  kernels::GateActivation activation_;
};

}  // namespace tessera::models
