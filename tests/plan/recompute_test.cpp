// SPDX-License-Identifier: Apache-2.0
// The choice of --gradient_checkpointing auto: the form that adds the fewest FLOPs of those that fit, of
// two with as many the one that keeps more.
#include <gtest/gtest.h>

#include "runtime/base/device.hpp"
#include "runtime/plan/recompute_choices.hpp"

namespace tessera::test {
namespace {

using shard::Recompute;

TEST(RecomputeChoices, TakesTheFastestThatFits) {
  const models::Model model = models::make(
      R"({"model_type": "gpt2", "vocab_size": 64, "n_positions": 64, "n_embd": 32, "n_layer": 4, "n_head": 2})",
      "test");
  plan::RunSpec spec;
  spec.model = &model;
  spec.strategy = shard::make_strategy("3", 2, 0, 2);
  spec.batch = plan::solve_batch(16, 4, std::nullopt, 2);
  spec.tokens = 64;
  const auto choices = plan::recompute_choices(spec);
  ASSERT_EQ(choices.size(), 4U);
  const Recompute order[] = {Recompute::keep_all, Recompute::none, Recompute::selective, Recompute::full};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(choices[i].recompute, order[i]);
    EXPECT_EQ(plan::choose_recompute(choices, choices[i].needed).recompute, order[i]);
    spec.strategy.policy.recompute = order[i];
    EXPECT_EQ(choices[i].needed, plan::memory_needed(plan::make_plan(spec)));
    if (i == 0) continue;
    EXPECT_LT(choices[i].needed, choices[i - 1].needed);
    const double added = choices[i - 1].costs.recompute_flops_per_step;
    if (order[i] == Recompute::none) EXPECT_EQ(choices[i].costs.recompute_flops_per_step, added);
    else EXPECT_GT(choices[i].costs.recompute_flops_per_step, added);
    EXPECT_EQ(plan::choose_recompute(choices, choices[i - 1].needed - 1).recompute, order[i]);
  }
  EXPECT_EQ(plan::choose_recompute(choices, 0).recompute, Recompute::full);  // none fits
}

/// On the host what a run computes in and the activations beside it are all that it takes.
TEST(RecomputeChoices, SeparateTheActivationsOfTheHost) {
  const models::Model model = models::make(
      R"({"model_type": "gpt2", "vocab_size": 64, "n_positions": 256, "n_embd": 32, "n_layer": 6, "n_head": 2})",
      "test");
  for (const Device device : {host_device, Device{Device::Kind::cuda, 0}}) {
    if (device != host_device && !cuda_built) continue;
    plan::RunSpec spec;
    spec.model = &model;
    spec.device = device;
    spec.topology.staged = device != host_device;
    spec.strategy = shard::make_strategy("3", 2, 0, 2);
    spec.batch = plan::solve_batch(128, 64, std::nullopt, 2);
    spec.tokens = 256;
    const auto resident = plan::recompute_choices(spec);
    spec.strategy.policy.activations = shard::Tier::host;
    const auto offloaded = plan::recompute_choices(spec);
    for (std::size_t i = 0; i < 4; ++i) {
      const auto all = offloaded[i].costs.memory[static_cast<int>(plan::Category::activations)];
      EXPECT_EQ(resident[i].host_activations, 0U);
      EXPECT_GT(offloaded[i].host_activations, 0U);
      EXPECT_LT(offloaded[i].host_activations, all);
      EXPECT_LT(offloaded[i].needed, resident[i].needed);
      EXPECT_LE(offloaded[i].host_activations, offloaded[i].costs.in[static_cast<int>(Memory::pinned)]);
      if (device != host_device) continue;
      EXPECT_EQ(offloaded[i].needed + offloaded[i].host_activations,
                offloaded[i].costs.in[static_cast<int>(Memory::host)] +
                    offloaded[i].costs.in[static_cast<int>(Memory::pinned)]);
    }
  }
}

/// Blocks of width C: QKV 6 C², the output projection 2 C², the MLP's first GEMM 8 C² and its second as much, and
/// attention 4 T C.
TEST(RecomputeChoices, CountTheFlopsOfGpt2) {
  const double c = 32, t = 64, tokens = 16 * t, layers = 4;
  const models::Model model = models::make(
      R"({"model_type": "gpt2", "vocab_size": 64, "n_positions": 64, "n_embd": 32, "n_layer": 4, "n_head": 2})",
      "test");
  plan::RunSpec spec;
  spec.model = &model;
  spec.strategy = shard::make_strategy("0", 1, 0, 1);
  spec.batch = plan::solve_batch(16, 4, std::nullopt, 1);
  spec.tokens = 64;
  const auto choices = plan::recompute_choices(spec);
  EXPECT_EQ(choices[2].costs.recompute_flops_per_step, layers * tokens * 8 * c * c);
  EXPECT_EQ(choices[3].costs.recompute_flops_per_step, layers * tokens * (16 * c * c + 4 * t * c));
}

}  // namespace
}  // namespace tessera::test
