// SPDX-License-Identifier: Apache-2.0
#pragma once
// The MLP of GPT-2 as a sublayer: down(gelu(up(x))). swiglu.hpp has the gated one.

#include "models/linear.hpp"
#include "models/sublayer.hpp"

namespace tessera::models {

struct GeluMlpSpec {
  LinearSpec up;    // in C, out I
  LinearSpec down;  // in I, out C
};

class GeluMlp final : public Sublayer {
 public:
  GeluMlp(const GeluMlpSpec& spec, ParamList& params);

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
  [[nodiscard]] double forward_flops(BatchShape shape) const override {
    return recompute_flops(shape, {.keeps = false, .writes_y = true});
  }
  [[nodiscard]] double recompute_flops(BatchShape shape, const RecomputeTask& what) const override;
  [[nodiscard]] double backward_flops(BatchShape shape, const Wanted& wanted) const override;

 private:
  [[nodiscard]] TensorView take_lora(ScratchAllocator& allocator, BatchShape shape, DType dtype) const {
    return take_lora_workspace(allocator, shape.batch * shape.tokens, dtype, {&up_, &down_});
  }
  struct Saved {
    TensorView before, after;  // the input of GELU, and, with BatchShape::saves_outputs, its output
  };
  [[nodiscard]] Saved saved(SavedAllocator& allocator, BatchShape shape, DType dtype) const;
  [[nodiscard]] TensorView take_hidden(ScratchAllocator& allocator, BatchShape shape, DType dtype) const {
    return allocator.take(dtype, {shape.batch * shape.tokens, up_.out()});  // (B·T, I)
  }

  Linear up_, down_;
};

}  // namespace tessera::models
