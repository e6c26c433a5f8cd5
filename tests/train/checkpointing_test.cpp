// SPDX-License-Identifier: Apache-2.0
// Gradient checkpointing: keep_all, none, selective and full give the same bits at every stage, and activations and
// work are as planned.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "models/lora.hpp"
#include "runtime/plan/activations.hpp"
#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

using shard::Op;
using shard::Recompute;

class Checkpointing : public ::testing::TestWithParam<std::string> {
 protected:
  models::Model model(DType dtype = DType::f32, bool lora = false) const {
    models::Model made = models::make(GetParam(), "test", dtype);
    if (lora) models::add_lora(made, {.rank = 3, .alpha = 6, .dropout = 0.2});
    return made;
  }
};

Outcome outcome(const models::Model& model, Variant v, Recompute recompute) {
  static const RandomTokens tokens(400, 37);
  v.recompute = recompute == Recompute::full;
  v.selective = recompute == Recompute::selective;
  v.keep_all = recompute == Recompute::keep_all;
  return run({&model, &tokens, 2, "", true, {}}, v);
}

plan::RunPlan plan_of(const models::Model& model, Variant v, Recompute recompute) {
  v.recompute = recompute == Recompute::full;
  v.selective = recompute == Recompute::selective;
  v.keep_all = recompute == Recompute::keep_all;
  return plan::make_plan(options_of(model, v, 1).run);
}

TEST_P(Checkpointing, SameBitsAtEveryStage) {
  for (const bool lora : {false, true})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const models::Model made = model(dtype, lora);
      const Variant base{.world = 2, .strategy = "0", .global_batch = 7, .micro_batch = 2, .dtype = dtype};
      const Outcome first = outcome(made, base, Recompute::none);
      for (const char* stage : {"0", "1", "2", "3"})
        for (const Recompute recompute : {Recompute::keep_all, Recompute::selective, Recompute::full}) {
          Variant v = base;
          v.strategy = stage;
          v.copies = stage[0] == '1';
          v.experts = stage[0] == '2' ? shard::ExpertUnits::block : shard::ExpertUnits::own;
          EXPECT_EQ(difference(first, outcome(made, v, recompute)), "") << v.str() << name_of(recompute);
        }
    }
}

TEST_P(Checkpointing, ActivationsAreWhatTheModulesSay) {
  const models::Model made = model();
  const Variant v{.world = 2, .strategy = "3", .global_batch = 8, .micro_batch = 2};
  const models::BatchShape shape{2, v.tokens};
  const std::size_t last = made.modules.size() - 1;
  models::BatchShape with_outputs = shape;
  with_outputs.saves_outputs = true;
  std::size_t all = 0, all_outputs = 0, kept = 0, largest = 0, largest_recomputed = 0;
  for (std::size_t m = 1; m < last; ++m) {
    const models::SavedBytes parts = made.modules[m]->split_saved_bytes(shape, DType::f32);
    EXPECT_EQ(parts.total(), made.modules[m]->saved_bytes(shape, DType::f32));
    all += parts.total(), kept += parts.kept;
    all_outputs += made.modules[m]->saved_bytes(with_outputs, DType::f32);
    largest = std::max(largest, parts.total());
    largest_recomputed = std::max(largest_recomputed, parts.recomputed);
  }
  const auto activations = [&](Recompute recompute) {
    std::size_t bytes = 0;  // of slots: costs round them up to pages
    for (const ArenaSlot& slot : plan_of(made, v, recompute).slots)
      bytes += slot.category == Category::activations ? slot.bytes : 0;
    return bytes;
  };
  const std::size_t none = activations(Recompute::none);
  EXPECT_GT(all_outputs, all);
  EXPECT_EQ(activations(Recompute::keep_all) - none, all_outputs - all);
  EXPECT_EQ(none - activations(Recompute::selective), all - kept - largest_recomputed);
  EXPECT_EQ(none - activations(Recompute::full), all - largest);
}

TEST_P(Checkpointing, RecomputesWhatIsNotKept) {
  const models::Model made = model();
  const Variant v{.world = 2, .strategy = "3", .global_batch = 8, .micro_batch = 2};
  std::map<Recompute, double> flops;
  for (const Recompute recompute : {Recompute::keep_all, Recompute::none, Recompute::selective, Recompute::full}) {
    const plan::RunPlan plan = plan_of(made, v, recompute);
    double expected = 0;
    for (const shard::Instruction& instruction : plan.train.list) {
      if (instruction.op != Op::recompute) continue;
      const models::Module& module = *made.modules[static_cast<std::size_t>(instruction.module)];
      const shard::ModuleUse& use = plan.train.modules[static_cast<std::size_t>(instruction.module)];
      const bool keeps = use.saves && use.saves_again;
      EXPECT_EQ(keeps, recompute == Recompute::selective) << module.name();
      expected += module.recompute_flops({plan.spec.batch.micro_batch, v.tokens}, keeps) * v.world;
    }
    EXPECT_EQ(plan.costs.recompute_flops_per_step, expected);
    flops[recompute] = expected;
    EXPECT_EQ(plan.costs.flops_per_step, plan_of(made, v, Recompute::none).costs.flops_per_step);
  }
  EXPECT_EQ(flops[Recompute::keep_all], 0);
  EXPECT_EQ(flops[Recompute::none], 0);
  EXPECT_LT(0, flops[Recompute::selective]);
  EXPECT_LT(flops[Recompute::selective], flops[Recompute::full]);
  EXPECT_LT(flops[Recompute::full], plan_of(made, v, Recompute::none).costs.flops_per_step / 3);
}

INSTANTIATE_TEST_SUITE_P(Families, Checkpointing,
                         ::testing::Values(config_json({.layers = 3}), std::string(qwen3_config),
                                           std::string(experts_config)));

}  // namespace
}  // namespace tessera::test
