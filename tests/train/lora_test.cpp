// SPDX-License-Identifier: Apache-2.0
// Adapters in training: strategies and scheduling options agree bit for bit, dropout included; the base keeps its bits
// and has no gradients; no split of the batch changes the mask of dropout.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "models/lora.hpp"
#include "tests/train/golden_checks.hpp"

namespace tessera::test {
namespace {

models::Model adapted(const std::string& config, const models::LoraSpec& spec, DType dtype = DType::f32) {
  models::Model model = models::make(config, "test", dtype);
  models::add_lora(model, spec);
  return model;
}

Outcome outcome(const models::Model& model, const Variant& v, int steps = 2) {
  static const RandomTokens tokens(400, 37);
  return run({&model, &tokens, steps, "", /*evaluate=*/steps > 1, {}}, v);
}

const models::LoraSpec dropping{.rank = 3, .alpha = 6, .dropout = 0.3};

class Lora : public ::testing::TestWithParam<int> {
 protected:
  const std::string config_ = GetParam() == 0   ? config_json({.layers = 3})
                              : GetParam() == 1 ? qwen3_config
                                                : experts_config;
};

TEST_P(Lora, SameBitsAtEveryStageAndOnlyAdaptersMove) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const models::Model model = adapted(config_, dropping, dtype);
    for (const int world : {1, 3, 4}) {
      const Variant base{.world = world, .strategy = "0", .global_batch = 7, .micro_batch = 2, .dtype = dtype};
      const Outcome first = outcome(model, base), before = outcome(model, base, 0);
      for (std::size_t p = 0; p < model.params.size(); ++p) {
        const auto at = static_cast<std::size_t>(first.param_offsets[p]);
        const auto bytes = static_cast<std::size_t>(model.params[p].numel()) * sizeof(float);
        EXPECT_EQ(std::memcmp(&first.params[at], &before.params[at], bytes) != 0, model.params[p].adapter)
            << model.params[p].name;
      }
      for (const char* stage : {"1", "2", "3", "HYBRID_SHARD"}) {
        if (stage[0] == 'H' && world != 4) continue;
        Variant v = base;
        v.strategy = stage;
        v.group = stage[0] == 'H' ? 2 : 0;
        v.recompute = world == 3;
        v.copies = world == 4;
        v.prefetch = world % 3;
        if (stage[0] == 'H') {  // other groups, other order of additions
          const Outcome hybrid = outcome(model, v);
          v.streams = Stream::Mode::deferred;
          EXPECT_EQ(difference(hybrid, outcome(model, v)), "") << v.str();
          continue;
        }
        EXPECT_EQ(difference(first, outcome(model, v)), "") << v.str();
        v.unit_strategies = {{"*.lora", "NO_SHARD"}};
        EXPECT_EQ(difference(first, outcome(model, v)), "") << v.str();
      }
    }
  }
}

TEST_P(Lora, ReproducibleOnAnyMeshWithDropout) {
  const models::Model model = adapted(config_, dropping);
  const Variant base{.world = 1, .global_batch = 8, .reproducible = true};
  const Outcome first = outcome(model, base);
  for (const auto& [world, strategy] : {std::pair{2, "3"}, {4, "0"}, {4, "2"}, {4, "HYBRID_SHARD"}}) {
    Variant v = base;
    v.world = world;
    v.strategy = strategy;
    v.group = strategy[0] == 'H' ? 2 : 0;
    v.recompute = world == 2;
    EXPECT_EQ(difference(first, outcome(model, v)), "") << v.str();
  }
}

/// Another micro-batch changes the order of additions, and nothing more. (Balance losses are of micro-batches.)
TEST_P(Lora, SplitOfTheBatchKeepsTheMask) {
  if (GetParam() == 2) GTEST_SKIP();
  const models::Model model = adapted(config_, dropping), plain = adapted(config_, {.rank = 3, .alpha = 6});
  const Variant base{.global_batch = 8, .micro_batch = 8};
  const Outcome first = outcome(model, base);
  const Outcome without = outcome(plain, base);
  EXPECT_GT(std::abs(first.norms[1] - without.norms[1]), 1e-3 * first.norms[1]);
  for (const auto& [world, micro] : {std::pair{1, 1}, {1, 3}, {2, 2}, {4, 1}}) {
    Variant v = base;
    v.world = world;
    v.micro_batch = micro;
    const Outcome other = outcome(model, v);
    for (std::size_t s = 0; s < first.losses.size(); ++s) {
      EXPECT_NEAR(other.losses[s], first.losses[s], 2e-6 * first.losses[s]) << v.str();
      EXPECT_NEAR(other.norms[s], first.norms[s], 2e-5 * first.norms[s]) << v.str();
    }
  }
}

/// With a base in bf16. The tolerance is that of full training.
TEST_P(Lora, Bf16StaysCloseToFp32) {
  const models::Model narrow = adapted(config_, dropping, DType::bf16), wide = adapted(config_, dropping);
  for (const char* strategy : {"0", "3"}) {
    Variant v{.world = 2, .strategy = strategy, .global_batch = 8, .micro_batch = 2};
    const Outcome a = outcome(wide, v, 8);
    v.dtype = DType::bf16;
    const Outcome b = outcome(narrow, v, 8);
    for (std::size_t s = 0; s < a.losses.size(); ++s)
      EXPECT_NEAR(b.losses[s], a.losses[s], 0.02 * a.losses[s]) << strategy << " step " << s;
    EXPECT_NE(a.losses, b.losses);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Lora, testing::Values(0, 1, 2));

const models::LoraSpec of_experts{
    .rank = 3, .alpha = 6, .targets = {"q_proj", "gate", "gate_proj", "up_proj", "down_proj"}};

TEST(LoraExperts, SameBitsAtEveryStage) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const models::Model model = adapted(experts_config, of_experts, dtype);
    for (const int world : {1, 2, 3, 4}) {
      Variant v{.world = world, .strategy = "0", .global_batch = 7, .micro_batch = 2, .dtype = dtype};
      const Outcome first = outcome(model, v);
      for (const char* stage : {"1", "2", "3"}) {
        v.strategy = stage;
        v.recompute = world == 3;
        v.copies = world == 4;
        v.experts = world == 2 ? shard::ExpertUnits::block : shard::ExpertUnits::own;
        EXPECT_EQ(difference(first, outcome(model, v)), "") << v.str();
      }
    }
  }
}

TEST(LoraExperts, ReproducibleOnAnyMesh) {
  const models::Model model = adapted(experts_config, of_experts);
  Variant v{.world = 1, .global_batch = 8, .reproducible = true};
  const Outcome first = outcome(model, v);
  for (const auto& [world, strategy] : {std::pair{2, "3"}, {4, "0"}, {4, "2"}}) {
    v.world = world;
    v.strategy = strategy;
    EXPECT_EQ(difference(first, outcome(model, v)), "") << v.str();
  }
}

TEST(LoraExperts, HaveNoDropout) {
  models::LoraSpec spec = of_experts;
  spec.dropout = 0.1;
  const models::Model model = adapted(experts_config, spec);
  try {
    (void)plan::make_plan(options_of(model, {}, 1).run);
    FAIL();
  } catch (const Error& error) { EXPECT_NE(error.line().find("--lora_dropout 0"), std::string::npos) << error.line(); }
}

/// Ten steps of PEFT, from its adapter.
struct GoldenCase {
  const char* model;
  const char* folder = "lora";
};
class GoldenLora : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(GoldenLora, TenStepsOfPeft) {
  expect_golden_of_every_strategy(load_lora_golden(GetParam().model, GetParam().folder));
}

INSTANTIATE_TEST_SUITE_P(
    Families, GoldenLora,
    ::testing::Values(GoldenCase{"tiny"}, GoldenCase{"llama"}, GoldenCase{"qwen2"}, GoldenCase{"qwen3"},
                      GoldenCase{"qwen3-moe"}, GoldenCase{"mixtral"}, GoldenCase{"qwen3-untied"}, GoldenCase{"mistral"},
                      GoldenCase{"phi3"}, GoldenCase{"olmo2"}, GoldenCase{"smollm3"}, GoldenCase{"granite"},
                      GoldenCase{"gemma2"}, GoldenCase{"gemma3"}, GoldenCase{"gpt-oss"}, GoldenCase{"llama4"},
                      GoldenCase{"llama3-rope"}, GoldenCase{"qwen3-moe-fused"}, GoldenCase{"qwen3-moe", "lora-experts"},
                      GoldenCase{"mixtral", "lora-experts"}, GoldenCase{"qwen3-moe-fused", "lora-experts"}),
    [](const auto& param_info) {
      std::string name = std::string(param_info.param.model) + "_" + param_info.param.folder;
      std::ranges::replace(name, '-', '_');
      return name;
    });

/// The dense shape of Qwen3-0.6B. Parameters, gradients and optimizer states of a rank.
TEST(LoraMemory, IsUnderAThirdOfFullFineTuning) {
  const std::string qwen3_06b =
      R"({"model_type": "qwen3", "vocab_size": 151936, "max_position_embeddings": 40960, "hidden_size": 1024,
  "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072,
  "tie_word_embeddings": true})";
  const auto bytes = [&](const models::Model& model) {
    const Variant v{.world = 2, .strategy = "3", .global_batch = 2, .tokens = 64, .dtype = DType::bf16};
    plan::RunSpec spec = options_of(model, v, 1).run;
    const plan::RunPlan plan = plan::make_plan(spec);
    for (int u = 0; u < plan.layout.num_units(); ++u)
      EXPECT_EQ(plan.layout.trainable(u), !model.lora || plan.layout.unit_name(u).ends_with(".lora"))
          << plan.layout.unit_name(u);
    const auto of = [&](Category c) { return plan.costs.memory[static_cast<int>(c)]; };
    return of(Category::params) + of(Category::grads) + of(Category::optimizer);
  };
  const models::Model full = models::make(qwen3_06b, "test", DType::bf16);
  const std::uint64_t lora = bytes(adapted(qwen3_06b, {}, DType::bf16));
  EXPECT_LT(3 * lora, bytes(full));
  EXPECT_GT(lora, 2U * 596'000'000 / 2);  // the base in bf16, on two ranks
}

}  // namespace
}  // namespace tessera::test
