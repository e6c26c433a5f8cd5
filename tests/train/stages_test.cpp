// SPDX-License-Identifier: Apache-2.0
// At equal world and reduction mode every ZeRO stage gives the same bits, and scheduling options change none.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

class Stages : public ::testing::Test {
 protected:
  models::Model model_ = models::make(config_json({}), "test");
  RandomTokens tokens_{400, 37};

  Outcome outcome(const Variant& variant, int steps = 3) {
    return run({&model_, &tokens_, steps, "", true, {}}, variant);
  }
};

TEST_F(Stages, SameBitsAtEveryWorldAndReduction) {
  for (const int world : {1, 2, 3, 4, 5, 8})
    for (const auto reduce : {shard::Reduce::each, shard::Reduce::last}) {
      Variant base{.world = world, .strategy = "0", .global_batch = 11, .reduce = reduce};
      const Outcome first = outcome(base);
      for (const double loss : first.losses) EXPECT_GT(loss, 1.0);
      for (const char* stage : {"1", "2", "3"})
        for (const bool copies : {false, true}) {
          Variant v = base;
          v.strategy = stage;
          v.copies = copies;
          EXPECT_EQ(difference(first, outcome(v)), "") << v.str();
        }
    }
}

TEST_F(Stages, ReplicasAgreeWithTheUnshardedRun) {
  // Meshes {replicate, shard} of the table; sums may round differently from {1, W} where W is no power of two.
  const Outcome single = outcome({.world = 1, .global_batch = 8, .micro_batch = 2});
  for (const auto& [world, group] : {std::pair{4, 2}, {6, 3}, {6, 2}, {8, 4}, {8, 2}, {5, 5}, {5, 1}})
    for (const char* stage : {"1", "2", "3", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"}) {
      if (group == world && stage[0] == 'H') continue;
      Variant v{.world = world,
                .strategy = group == 1 ? "0" : stage,
                .group = group == 1 ? 0 : group,
                .global_batch = 8,
                .micro_batch = 1};
      const Outcome o = outcome(v);
      for (std::size_t s = 0; s < o.losses.size(); ++s) {
        EXPECT_NEAR(o.losses[s], single.losses[s], 2e-5 * single.losses[s]) << v.str();
        EXPECT_NEAR(o.norms[s], single.norms[s], 2e-5 * single.norms[s]) << v.str();
      }
      for (std::size_t i = 0; i < o.params.size(); ++i)
        ASSERT_NEAR(o.params[i], single.params[i], 2e-3) << v.str() << " at " << i;
    }
}

TEST_F(Stages, SchedulingKnobsChangeNoBit) {
  for (const int world : {1, 3, 4})
    for (const char* stage : {"0", "1", "2", "3"})
      for (const auto reduce : {shard::Reduce::each, shard::Reduce::last}) {
        const Variant base{
            .world = world, .strategy = stage, .global_batch = 3 * world, .reduce = reduce, .copies = true};
        const Outcome first = outcome(base);
        const auto same = [&](const Variant& v) { EXPECT_EQ(difference(first, outcome(v)), "") << v.str(); };
        for (const int prefetch : {0, 2, 3}) {
          Variant v = base;
          v.prefetch = prefetch;
          same(v);
        }
        Variant v = base;
        v.recompute = true;
        same(v);
        v.reshard = false;
        same(v);
        v = base;
        v.streams = Stream::Mode::deferred;  // a missing wait would show
        same(v);
        v.copies = false;
        same(v);
        v.ranks_per_node = 2;
        if (world == 4) same(v);
      }
}

TEST_F(Stages, DelaysChangeNoBit) {
  const Variant base{.world = 3, .global_batch = 6, .copies = true};
  const Outcome first = outcome(base, 2);
  for (const Delay& delay : {Delay{.gather_s = 3e-3}, Delay{.reduce_s = 3e-3}, Delay{.norm_s = 5e-3},
                             Delay{.gather_s = 1e-3, .reduce_s = 2e-3, .norm_s = 1e-3}}) {
    Variant v = base;
    v.delay = delay;
    EXPECT_EQ(difference(first, outcome(v, 2)), "") << v.str();
    v.copies = false;
    EXPECT_EQ(difference(first, outcome(v, 2)), "") << v.str();
  }
}

/// The same for other families: one like Llama with QK norm, one with experts and load-balancing loss.
class StagesOfFamilies : public ::testing::TestWithParam<const char*> {};

TEST_P(StagesOfFamilies, SameBitsAtEveryStageAndWithEveryKnob) {
  const models::Model model = models::make(GetParam(), "test");
  const RandomTokens tokens(400, 37);
  for (const int world : {1, 2, 3, 4})
    for (const auto reduce : {shard::Reduce::each, shard::Reduce::last}) {
      std::vector<double> aux;
      const auto outcome = [&](const Variant& v, bool keep = false) {
        const std::function<void(train::Trainer&)> after = [&](train::Trainer& trainer) {
          if (trainer.world().rank() != 0 || model.router.layers == 0) return;
          if (keep) aux.insert(aux.end(), trainer.layer_aux_losses().begin(), trainer.layer_aux_losses().end());
          else EXPECT_THAT(aux, ::testing::Contains(trainer.layer_aux_losses()[0]));
        };
        return run({&model, &tokens, 3, "", true, after}, v);
      };
      Variant base{.world = world, .strategy = "0", .global_batch = 7, .micro_batch = 2, .reduce = reduce};
      const Outcome first = outcome(base, /*keep=*/true);
      for (const double loss : first.losses) EXPECT_GT(loss, 1.0);
      for (const double loss : aux) EXPECT_TRUE(loss > 1.5 && loss < 5) << loss;  // K at perfect balance
      const auto same = [&](const Variant& v) { EXPECT_EQ(difference(first, outcome(v)), "") << v.str(); };
      for (const char* stage : {"1", "2", "3"}) {
        Variant v = base;
        v.strategy = stage;
        v.copies = world == 3;
        same(v);
        v.recompute = true;
        v.prefetch = 2;
        same(v);
        v.experts = shard::ExpertUnits::block;
        v.streams = Stream::Mode::deferred;
        same(v);
      }
    }
}

TEST_P(StagesOfFamilies, ReproducibleAtAnyPowerOfTwo) {
  const models::Model model = models::make(GetParam(), "test");
  const RandomTokens tokens(400, 37);
  const Variant base{.world = 1, .strategy = "3", .global_batch = 8, .micro_batch = 1, .reproducible = true};
  const Outcome first = run({&model, &tokens, 2, "", false, {}}, base);
  for (const int world : {2, 4})
    for (const char* stage : {"0", "3"}) {
      Variant v = base;
      v.world = world;
      v.strategy = stage;
      EXPECT_EQ(difference(first, run({&model, &tokens, 2, "", false, {}}, v)), "") << v.str();
    }
}

INSTANTIATE_TEST_SUITE_P(Families, StagesOfFamilies, ::testing::Values(qwen3_config, experts_config));

TEST_F(Stages, TiedEmbeddingMovesInEveryRow) {
  // 41 rows over 5 ranks divide nothing; every row of the tied table gets a gradient from the head.
  models::Model model = models::make(config_json({.layers = 1, .hidden = 20, .heads = 2, .vocab = 41}), "test");
  RandomTokens tokens(300, 41);
  const Variant v{.world = 5, .global_batch = 5};
  const Outcome before = run({&model, &tokens, 0, "", false, {}}, v),
                after = run({&model, &tokens, 3, "", false, {}}, v);
  for (std::size_t row = 0; row < 41; ++row) {
    bool moved = false;
    for (std::size_t c = 0; c < 20; ++c) moved |= before.params[row * 20 + c] != after.params[row * 20 + c];
    EXPECT_TRUE(moved) << row;
  }
}

}  // namespace
}  // namespace tessera::test
