// SPDX-License-Identifier: Apache-2.0
// Ten AdamW or SGD steps against PyTorch (tests/models/golden), on 1 to 4 ranks and at each ZeRO stage; also with
// frozen parameters.

#include <gtest/gtest.h>

#include "tests/train/golden_checks.hpp"

namespace tessera::test {
namespace {

class GoldenShape : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenShape, TenStepsOfPyTorch) {
  const Golden golden = load_golden(GetParam());
  for (const int world : {1, 2, 3, 4}) {
    const auto first = check(golden, golden_stage(golden, world, "0"));
    for (const char* stage : {"1", "2", "3"})
      EXPECT_EQ(check(golden, golden_stage(golden, world, stage)), first) << "ZeRO-" << stage;
  }
}

TEST_P(GoldenShape, TenStepsOfPyTorchsSgd) {
  const Golden golden = load_golden(GetParam(), "sgd.json");
  for (const int world : {1, 2, 3, 4}) {
    const auto first = check(golden, golden_stage(golden, world, "0"));
    for (const char* stage : {"1", "2", "3"})
      EXPECT_EQ(check(golden, golden_stage(golden, world, stage)), first) << "ZeRO-" << stage;
  }
  for (const char* hybrid : {"HYBRID_SHARD", "HYBRID_SHARD_ZERO2"}) {
    Variant v = golden_stage(golden, 4, hybrid);
    v.group = 2;
    (void)check(golden, v);
  }
}

TEST(Golden8Bit, TenStepsOfPyTorchsAdamWWithQuantizedMoments) {
  const Golden golden = load_golden("tiny", "adamw_8bit.json");
  for (const int world : {1, 3, 4}) {
    const auto first = check(golden, golden_stage(golden, world, "0"));
    for (const char* stage : {"1", "2", "3"})
      EXPECT_EQ(check(golden, golden_stage(golden, world, stage)), first) << "ZeRO-" << stage;
  }
  Variant v = golden_stage(golden, 4, "HYBRID_SHARD");
  v.group = 2;
  (void)check(golden, v);
}

TEST(GoldenGroups, TenStepsOfPyTorchsAdamWWithParameterGroups) {
  const Golden golden = load_golden("odd", "param_groups.json");
  for (const int world : {1, 3})
    for (const char* stage : {"0", "2", "3"}) (void)check(golden, golden_stage(golden, world, stage));
}

TEST(GoldenWeighted, TenStepsOfPyTorchWithLossWeights) {
  for (const char* shape : {"tiny", "qwen2"}) {
    const Golden golden = load_golden(shape, "weighted.json");
    for (const int world : {1, 2, 3, 4}) {
      const auto first = check(golden, golden_stage(golden, world, "0"));
      for (const char* stage : {"2", "3"})
        EXPECT_EQ(check(golden, golden_stage(golden, world, stage)), first) << "ZeRO-" << stage;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, GoldenShape, ::testing::Values("tiny", "odd", "text"));

class GoldenFamily : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenFamily, StepsOfTransformersOnAnyRanks) {
  const Golden golden = load_golden(GetParam());
  for (const int world : {1, 2, 3})
    (void)check(golden, golden_family(golden, world));  // on 2 ranks the last micro-batch is empty
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenFamily,
                         ::testing::Values("llama", "llama3-rope", "qwen2", "qwen3", "qwen3-untied", "qwen3-moe",
                                           "qwen3-moe-fused", "mixtral", "mistral", "qwen3-window", "phi3", "phi3-long",
                                           "olmo2", "smollm3", "granite", "gemma2", "gemma3", "gpt-oss", "llama4"));

class GoldenFrozen : public ::testing::TestWithParam<FrozenGolden> {};

TEST_P(GoldenFrozen, TenStepsOfPyTorch) {
  const Golden golden = load_golden(GetParam());
  for (const int world : {1, 2, 3, 4}) {  // a step has two micro-batches: on more ranks some are empty
    const Variant base = golden_family(golden, world);
    const auto first = check(golden, base);
    for (const char* stage : {"0", "1", "2"}) {
      Variant v = base;
      v.strategy = stage;
      v.copies = !v.copies;
      EXPECT_EQ(check(golden, v), first) << "ZeRO-" << stage;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, GoldenFrozen, ::testing::ValuesIn(frozen_goldens));

}  // namespace
}  // namespace tessera::test
