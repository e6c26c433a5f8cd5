// SPDX-License-Identifier: Apache-2.0
// Scores, the loss of their pairs, and the gradients of the last tokens alone.
#include "models/reward_loss.hpp"

#include "kernels/preference_loss.hpp"
#include "kernels/reward_loss.hpp"
#include "models/scratch_allocator.hpp"
#include "runtime/base/error.hpp"

namespace tessera::models {

namespace {

class RewardLoss final : public Loss {
 public:
  explicit RewardLoss(const RewardSpec& spec) : spec_(spec) {}

  void compute(const LossArgs& args) const override {
    const Batch& batch = *args.batch;
    TESSERA_ASSERT(batch.positions && batch.sequence_values, "scores of rows without positions");
    ScratchAllocator allocator(args.workspace);
    const Scratch w = scratch(allocator, args.shape);
    kernels::score_sequences({.x = args.x,
                              .weight = args.weight,
                              .ids = batch.ids,
                              .positions = batch.positions,
                              .pad_token = spec_.pad_token,
                              .last = w.last,
                              .scores = batch.sequence_values,
                              .ends = batch.sequence_ends},
                             args.stream);
    const bool trains = args.dx || args.dweight;
    kernels::reward_loss({.scores = batch.sequence_values,
                          .margins = batch.margins,
                          .center = spec_.center,
                          .slopes = trains ? w.slopes : TensorView{},
                          .sums = batch.sums,
                          .metrics = batch.metrics},
                         args.stream);
    if (!trains) return;
    kernels::score_backward({.x = args.x,
                             .weight = args.weight,
                             .last = w.last,
                             .slopes = w.slopes,
                             .loss_scale = batch.loss_scale,
                             .dx = args.dx,
                             .dweight = args.dweight,
                             .accumulate = args.accumulate},
                            args.stream);
  }
  [[nodiscard]] int num_metrics() const override { return kernels::num_preference_sums; }
  [[nodiscard]] bool writes_sequences() const override { return true; }
  [[nodiscard]] std::size_t workspace_bytes(BatchShape shape, std::int64_t vocab, DType dtype) const override {
    (void)vocab, (void)dtype;
    return bytes_of([&](ScratchAllocator& allocator) { (void)scratch(allocator, shape); });
  }

 private:
  struct Scratch {
    TensorView last;    // int32, one of each sequence
    TensorView slopes;  // fp64, the same
  };
  static Scratch scratch(ScratchAllocator& allocator, BatchShape shape) {
    Scratch s;
    s.last = allocator.take(DType::i32, {shape.num_sequences()});
    s.slopes = allocator.take(DType::f64, {shape.num_sequences()});
    return s;
  }

  RewardSpec spec_;
};

}  // namespace

std::shared_ptr<const Loss> reward_loss(const RewardSpec& spec) { return std::make_shared<const RewardLoss>(spec); }

}  // namespace tessera::models
