// SPDX-License-Identifier: Apache-2.0
// Short and empty micro-batches: every token of the global batch counts once, in any world.

#include <gtest/gtest.h>

#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

TEST(PartialBatch, TokensSumToGlobalBatchTimesT) {
  models::Model model = models::make(config_json({.layers = 1}), "test");
  RandomTokens tokens(500, 37);
  for (const int world : {1, 2, 3, 4, 5, 8})
    for (const std::int64_t global : {1, 2, 7, 13})
      for (const std::int64_t micro : {1, 2, 4}) {
        const Variant v{.world = world, .global_batch = global, .micro_batch = micro};
        const Outcome o = run({&model, &tokens, 2, "", false, {}}, v);
        for (const auto count : o.tokens) EXPECT_EQ(count, global * v.tokens) << v.str();
      }
}

TEST(PartialBatch, LastBatchOfAnEpoch) {
  // 10 samples, global batch 4: the third step has 2; its loss is the mean over these, on any number of ranks.
  models::Model model = models::make(config_json({.layers = 1}), "test");
  RandomTokens tokens(10 * 9 + 1, 37);
  double first = 0;
  for (const int world : {1, 3, 4}) {
    run_local(world, [&](World& w) {
      Variant v{.world = world, .global_batch = 4};
      train::Trainer trainer(w, options_of(model, v, 3));
      trainer.initialize();
      const io::Sampler sampler(10, false, 0);
      (void)trainer.step(tokens, sampler, 0, 4);
      (void)trainer.step(tokens, sampler, 4, 4);
      const auto report = trainer.step(tokens, sampler, 8, 2);
      EXPECT_EQ(report.tokens, 2 * 9);
      if (w.rank() == 0 && world == 1) first = report.loss;
      EXPECT_NEAR(report.loss, first, 2e-5 * first);
    });
  }
}

TEST(PartialBatch, EvaluationIsTheSameOnAnyWorld) {
  models::Model model = models::make(config_json({.layers = 1}), "test");
  RandomTokens tokens(300, 37);
  const Outcome one = run({&model, &tokens, 0, "", true, {}}, {.world = 1, .micro_batch = 2});
  for (const int world : {2, 3, 5, 8}) {
    const Outcome other = run({&model, &tokens, 0, "", true, {}}, {.world = world, .micro_batch = 2});
    EXPECT_EQ(one.eval_loss, other.eval_loss) << world;
    EXPECT_EQ(one.generated, other.generated) << world;
  }
}

}  // namespace
}  // namespace tessera::test
