// SPDX-License-Identifier: Apache-2.0
// --reproducible: the same bits for any power-of-two world, ZeRO stage, mesh and split of one global batch.

#include <gtest/gtest.h>

#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

TEST(Reproducible, WorldsMeshesAndStages) {
  models::Model model = models::make(config_json({}), "test");
  RandomTokens tokens(500, 37);
  // 13 micro-batches: in every world the last accumulation step is partial; with B 2 the last micro-batch is short,
  // too.
  for (const std::int64_t micro : {1, 2}) {
    const Variant base{.world = 1, .strategy = "3", .global_batch = 13, .micro_batch = micro, .reproducible = true};
    const Outcome first = run({&model, &tokens, 3, "", true, {}}, base);
    for (const int world : {1, 2, 4, 8, 16})
      for (const auto& [strategy, group] : {std::pair{"0", 0},
                                            {"1", 0},
                                            {"2", 0},
                                            {"3", 0},
                                            {"HYBRID_SHARD", 2},
                                            {"HYBRID_SHARD_ZERO2", 4},
                                            {"1", 2}}) {
        if (group >= world) continue;
        for (const bool copies : {false, true}) {
          Variant v = base;
          v.world = world;
          v.strategy = strategy;
          v.group = group;
          v.copies = copies;
          EXPECT_EQ(difference(first, run({&model, &tokens, 3, "", true, {}}, v)), "") << v.str();
        }
      }
  }
}

TEST(Reproducible, RefusesOtherWorlds) {
  models::Model model = models::make(config_json({}), "test");
  for (const int world : {3, 5, 6}) {
    Variant v{.world = world, .global_batch = world, .reproducible = true};
    auto options = options_of(model, v, 1);
    try {
      (void)plan::make_plan(options.run);
      FAIL() << world;
    } catch (const Error& error) { EXPECT_EQ(error.code(), ExitCode::usage); }
  }
}

}  // namespace
}  // namespace tessera::test
