// SPDX-License-Identifier: Apache-2.0
#pragma once
// SharedExpert: a dense MLP of every token beside a mixture of experts: mlp(x) + experts(x).

#include <memory>

#include "models/mlp.hpp"
#include "models/moe.hpp"
#include "models/sublayer.hpp"

namespace tessera::models {

class SharedExpert final : public Sublayer {
 public:
  /// `channels`: of x.
  SharedExpert(std::unique_ptr<Mlp> mlp, std::unique_ptr<MoeMlp> experts, std::int64_t channels)
      : mlp_(std::move(mlp)), experts_(std::move(experts)), channels_(channels) {}

  void adapt(AdapterMaker& adapters) override;
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
    SavedAllocator::Memory mlp, experts;
  };
  struct Scratch {
    TensorView dx;    // (B·T, C): the MLP's gradient of the input; backward
    TensorView part;  // bytes: of the two in turn
  };
  [[nodiscard]] Saved saved(SavedAllocator& allocator, BatchShape shape, DType dtype) const;
  [[nodiscard]] Scratch scratch(ScratchAllocator& allocator, BatchShape shape, DType dtype, Phase phase) const;

  std::unique_ptr<Mlp> mlp_;
  std::unique_ptr<MoeMlp> experts_;
  std::int64_t channels_;
};

}  // namespace tessera::models
