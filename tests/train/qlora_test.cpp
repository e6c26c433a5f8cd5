// SPDX-License-Identifier: Apache-2.0
// Adapters over a quantized base: ten steps of PEFT over bitsandbytes, from weights that are quantized here and from
// those that transformers has saved; the same bits with every strategy; memory and bytes of gathers as planned.

#include <gtest/gtest.h>

#include "io/file/text_file.hpp"
#include "models/lora.hpp"
#include "models/quantize.hpp"
#include "runtime/plan/activations.hpp"
#include "tests/train/golden_checks.hpp"

namespace tessera::test {
namespace {

TEST(QloraGolden, TenStepsOfPeftOverBitsandbytes) {
  Golden golden = load_lora_golden("qwen3", "qlora");
  models::quantize(golden.model, QuantFormat::nf4);
  Golden stored = load_lora_golden("qwen3", "qlora");
  models::quantize(stored.model, QuantFormat::nf4);
  stored.directory += "/bnb-nf4";
  for (const int world : {1, 2, 3, 4}) {
    const auto first = check(golden, golden_stage(golden, world, "0"));
    for (const char* stage : {"1", "2", "3"})
      EXPECT_EQ(check(golden, golden_stage(golden, world, stage)), first) << "ZeRO-" << stage;
    EXPECT_EQ(check(stored, golden_stage(stored, world, "3")), first) << "saved by transformers";
  }
}

/// Loss and norm of each step.
std::vector<double> curve_of(const Golden& golden, const Variant& v) {
  std::vector<double> curve;
  run_local(v.world, [&](World& world) {
    const GoldenRun run = run_golden(world, golden, v);
    if (world.rank() == 0) curve = run.curve;
  });
  return curve;
}

/// The same run from weights that are quantized here and from those that transformers has saved, near the one over nf4
/// with double quantization.
TEST(QloraGolden, OtherCodesOfFourBitsAreQuantizedAsByTransformers) {
  for (const auto& [folder, format] :
       {std::pair{"/bnb-nf4-single", QuantFormat::nf4_single}, {"/bnb-fp4", QuantFormat::fp4_single}}) {
    Golden made = load_lora_golden("qwen3", "qlora"), stored = load_lora_golden("qwen3", "qlora");
    models::quantize(made.model, format);
    models::quantize(stored.model, format);
    stored.directory += folder;
    const std::vector<double> curve = curve_of(made, golden_stage(made, 2, "3"));
    EXPECT_EQ(curve_of(stored, golden_stage(stored, 2, "3")), curve) << folder;
    ASSERT_EQ(curve.size(), 2 * made.expected["loss"].size());
    for (std::size_t i = 0; i < curve.size() / 2; ++i)
      EXPECT_NEAR(curve[2 * i], made.expected["loss"][i].get<double>(), 0.05) << folder;
  }
}

models::Model quantized(const std::string& config, QuantFormat format, DType dtype = DType::f32) {
  models::Model model = models::make(config, "test", dtype);
  models::add_lora(model, {.rank = 3, .alpha = 6, .dropout = config == experts_config ? 0.0 : 0.3});
  models::quantize(model, format);
  return model;
}

Outcome outcome(const models::Model& model, const Variant& v, int steps = 2) {
  static const RandomTokens tokens(400, 37);
  return run({&model, &tokens, steps, "", /*evaluate=*/true, {}}, v);
}

std::size_t bytes_of(const plan::RunPlan& plan, const std::string& slot) {
  const auto found = std::ranges::find(plan.slots, slot, &plan::ArenaSlot::name);
  return found == plan.slots.end() ? 0 : found->bytes;
}

class Qlora : public ::testing::TestWithParam<std::tuple<const char*, QuantFormat>> {};

TEST_P(Qlora, SameBitsAtEveryStageAndTheBaseKeepsItsBytes) {
  const auto& [config, format] = GetParam();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const models::Model model = quantized(config, format, dtype);
    for (const int world : {1, 3, 4}) {
      Variant v{.world = world, .strategy = "0", .global_batch = 7, .micro_batch = 2, .dtype = dtype};
      const Outcome first = outcome(model, v), before = outcome(model, v, 0);
      for (std::size_t p = 0; p < model.params.size(); ++p) {
        const auto at = static_cast<std::size_t>(first.param_offsets[p]);
        const std::vector<float> then(&before.params[at], &before.params[at] + model.params[p].numel()),
            now(&first.params[at], &first.params[at] + model.params[p].numel());
        EXPECT_EQ(now != then, model.params[p].adapter) << model.params[p].name;
      }
      for (const char* stage : {"1", "2", "3"}) {
        v.strategy = stage;
        v.recompute = world == 3;
        v.copies = world == 4;
        v.experts = world == 3 ? shard::ExpertUnits::block : shard::ExpertUnits::own;
        EXPECT_EQ(difference(first, outcome(model, v)), "") << v.str();
      }
    }
    Variant hybrid{.world = 4, .strategy = "HYBRID_SHARD", .group = 2, .global_batch = 8, .dtype = dtype};
    const Outcome threaded = outcome(model, hybrid);
    hybrid.streams = Stream::Mode::deferred;
    EXPECT_EQ(difference(threaded, outcome(model, hybrid)), "");
  }
}

/// HYBRID, too, has the bits of one rank where the order of additions is a tree's.
TEST_P(Qlora, ReproducibleOnAnyMesh) {
  const auto& [config, format] = GetParam();
  const models::Model model = quantized(config, format);
  const Variant base{.world = 1, .global_batch = 8, .reproducible = true};
  const Outcome first = outcome(model, base);
  for (const char* strategy : {"0", "3", "HYBRID_SHARD"}) {
    Variant v = base;
    v.world = 4;
    v.strategy = strategy;
    v.group = strategy[0] == 'H' ? 2 : 0;
    EXPECT_EQ(difference(first, outcome(model, v)), "") << v.str();
  }
}

TEST_P(Qlora, MemoryIsAsPlanned) {
  const auto& [config, format] = GetParam();
  const models::Model model = quantized(config, format, DType::bf16);
  const RandomTokens tokens(400, 37);
  const io::Sampler sampler(40, true, 1);
  for (const char* strategy : {"0", "3"}) {
    const Variant v{.world = 2, .strategy = strategy, .dtype = DType::bf16};
    run_local(v.world, [&](World& world) {
      train::Trainer trainer(world, options_of(model, v, 2));
      trainer.arena().fill_with_pattern();
      trainer.initialize();
      (void)trainer.step(tokens, sampler, 0, v.global_batch);
      EXPECT_EQ(plan::compare_memory(trainer.plan(), trainer.measured_memory()), "");
      EXPECT_EQ(trainer.arena().broken_canary(), "");
      const std::string slot = "dequantized";
      EXPECT_GT(trainer.arena().touched(slot) + 256, bytes_of(trainer.plan(), slot));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Qlora,
                         testing::Combine(testing::Values(qwen3_config, experts_config),
                                          testing::Values(QuantFormat::nf4, QuantFormat::nf4_single,
                                                          QuantFormat::int8)));

const char* const llama_8b =
    R"({"model_type": "llama", "vocab_size": 128256, "max_position_embeddings": 131072, "hidden_size": 4096,
  "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
  "tie_word_embeddings": false, "rms_norm_eps": 1e-5, "rope_theta": 5e5})";

plan::RunPlan plan_of(const models::Model& model, int world) {
  Variant v{.world = world, .strategy = "3", .global_batch = world, .tokens = 512, .dtype = DType::bf16};
  return plan::make_plan(options_of(model, v, 1).run);
}

/// Embedding and head are bf16, as with bitsandbytes.
TEST(QloraPlan, ABaseOfLlama8BTakesUnder6GB) {
  models::Model plain = models::make(llama_8b, "8b", DType::bf16);
  models::add_lora(plain, {});
  const models::Model model = [] {
    models::Model made = models::make(llama_8b, "8b", DType::bf16);
    models::add_lora(made, {});
    models::quantize(made, QuantFormat::nf4);
    return made;
  }();
  EXPECT_EQ(model.num_params(), plain.num_params());
  const plan::RunPlan one = plan_of(model, 1);
  EXPECT_LT(plan::frozen_bytes(one), 6'000'000'000U);
  EXPECT_GT(plan::frozen_bytes(plan_of(plain, 1)), 16'000'000'000U);
  // A layer's matrices in bf16 are the workspace.
  EXPECT_EQ(bytes_of(one, "dequantized"), 2U * 218103808);
  // Gathers carry the quantized bytes.
  const auto sent = [](const plan::RunPlan& plan) {
    return static_cast<double>(plan.costs.shard_axis.within_node + plan.costs.shard_axis.across_nodes);
  };
  EXPECT_LT(sent(plan_of(model, 4)), 0.45 * sent(plan_of(plain, 4)));
}

TEST(QloraPlan, Gpt2IsRefused) {
  models::Model model = models::make(config_json({}), "test");
  models::add_lora(model, {});
  EXPECT_THROW(models::quantize(model, QuantFormat::nf4), Error);
}

}  // namespace
}  // namespace tessera::test
