// SPDX-License-Identifier: Apache-2.0
#include "models/loss.hpp"

namespace tessera::models {

namespace {

class CrossEntropy final : public Loss {
 public:
  void compute(const LossArgs& args) const override {
    const Batch& batch = *args.batch;
    const Shape rows{args.x.shape[0]};
    kernels::linear_cross_entropy({.x = args.x,
                                   .weight = args.weight,
                                   .targets = batch.targets.reshape(rows),
                                   .weights = reshaped(batch.loss_weights, rows),
                                   .logits = args.logits,
                                   .sums = batch.sums,
                                   .workspace = args.workspace,
                                   .loss_scale = batch.loss_scale,
                                   .dx = args.dx,
                                   .dweight = args.dweight,
                                   .accumulate = args.accumulate,
                                   .low = args.low},
                                  args.stream);
  }
  [[nodiscard]] std::size_t workspace_bytes(BatchShape shape, std::int64_t vocab, DType dtype) const override {
    return kernels::linear_cross_entropy_workspace(shape.batch * shape.tokens, vocab, dtype, shape.device);
  }
};

}  // namespace

std::shared_ptr<const Loss> cross_entropy() {
  static const auto loss = std::make_shared<const CrossEntropy>();
  return loss;
}

}  // namespace tessera::models
