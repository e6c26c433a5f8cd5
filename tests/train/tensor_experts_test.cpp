// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts of whose matrices ranks have parts, alone and where others share the rows: losses, gradients and
// balance losses are those of one rank.
#include "models/context.hpp"
#include "models/quantize.hpp"
#include "tests/train/experts_configs.hpp"
#include "tests/train/tensor_runs.hpp"

namespace tessera::test {
namespace {

using Change = std::function<void(models::Model&)>;

Outcome run_experts(const std::string& config, const Variant& v, const io::TokenStream& tokens, int steps = 4,
                    const Change& change = {}) {
  models::Model model = models::make(config, "test", v.dtype);
  if (change) change(model);
  models::split_tensors(model, v.tensor);
  models::share_rows(model, v.context);
  return run({&model, &tokens, steps, "", /*evaluate=*/true, plan_is_exact}, v);
}

Variant with_context(Variant v, int ranks) {
  v.context = ranks;
  return v;
}

void expect_same_experts(const Outcome& one, const Outcome& other, const std::string& what, double tolerance = 1e-5) {
  expect_same_curve(one, other, what, tolerance);
  ASSERT_EQ(one.aux_losses.size(), other.aux_losses.size());
  for (std::size_t i = 0; i < one.aux_losses.size(); ++i)
    EXPECT_NEAR(one.aux_losses[i], other.aux_losses[i], tolerance) << what << ", balance loss " << i;
  EXPECT_NEAR(one.eval_loss, other.eval_loss, tolerance) << what;
}

TEST(TensorExperts, TenStepsAreThoseOfOneRank) {
  const RandomTokens tokens(800, 37);
  for (const char* family : {"mixtral", "qwen3_moe"}) {
    const std::string config = experts_like(family);
    const Outcome one = run_experts(config, tensor_variant(1, 1), tokens, 10);
    for (const auto& [world, ranks] : {std::pair{2, 2}, {4, 4}, {4, 2}}) {
      const Outcome other = run_experts(config, tensor_variant(world, ranks), tokens, 10);
      expect_same_experts(one, other, strfmt("%s, %d on %d", family, ranks, world));
      EXPECT_EQ(one.generated, other.generated);
    }
  }
}

/// All of a layer in one tensor: with biases, interleaved columns and sinks, and beside a shared expert.
TEST(TensorExperts, FusedExperts) {
  const RandomTokens random(800, 37);
  const auto packed = packed_rows();
  for (const char* config : {gpt_oss_config, llama4_config})
    for (const io::TokenStream* tokens : std::initializer_list<const io::TokenStream*>{&random, packed.get()}) {
      const Outcome one = run_experts(config, tensor_variant(1, 1), *tokens, 10);
      for (const auto& [world, ranks] : {std::pair{2, 2}, {4, 4}, {4, 2}}) {
        const Outcome other = run_experts(config, tensor_variant(world, ranks), *tokens, 10);
        expect_same_experts(one, other, strfmt("%s, %d on %d", config, ranks, world));
        EXPECT_EQ(one.generated, other.generated);
      }
      expect_same_experts(run_experts(config, tensor_variant(1, 1), *tokens),
                          run_experts(config, with_context(tensor_variant(8, 2), 2), *tokens), "2 x 2 x 2");
    }
}

TEST(TensorExperts, PackedAndPaddedRowsAreThoseOfOneRank) {
  const std::string config = experts_like("qwen3_moe", 4);
  for (const io::Packing packing : {io::Packing::sequential, io::Packing::padded}) {
    const auto rows = document_rows(row_length, packing);
    const Outcome one = run_experts(config, tensor_variant(1, 1), *rows);
    for (const int ranks : {2, 4})
      expect_same_experts(one, run_experts(config, tensor_variant(4, ranks), *rows), strfmt("%d ranks", ranks));
    expect_same_experts(one, run_experts(config, with_context(tensor_variant(8, 2), 2), *rows), "2 x 2 x 2");
  }
}

TEST(TensorExperts, StrategiesAndMemoryChangeNoBit) {
  const RandomTokens tokens(800, 37);
  struct Case {
    std::string config;
    int context;
  };
  for (const Case& of : {Case{experts_like("qwen3_moe"), 1}, {experts_like("qwen3_moe"), 2}, {gpt_oss_config, 1}}) {
    const auto& config = of.config;
    const int context = of.context;
    const auto variant = [&](const char* strategy) { return with_context(tensor_variant(4, 2, strategy), context); };
    const Outcome of_first = run_experts(config, variant("0"), tokens, 3);
    const auto expect_bits = [&](const Variant& v) {
      const Outcome other = run_experts(config, v, tokens, 3);
      EXPECT_EQ(difference(of_first, other), "") << v.str();
      EXPECT_EQ(of_first.aux_losses, other.aux_losses) << v.str();
    };
    for (const char* strategy : {"1", "2", "3"}) expect_bits(variant(strategy));
    for (int which = 0; which < 5; ++which) {
      Variant v = variant("3");
      v.recompute = which == 0 || which == 4;
      v.selective = which == 1;
      v.keep_all = which == 2;
      v.copies = which == 3;
      v.offload_activations = which == 4;
      expect_bits(v);
    }
  }
}

TEST(TensorExperts, AdaptersOfExpertsAndRouters) {
  const RandomTokens tokens(800, 37);
  const std::string config = experts_like("qwen3_moe");
  const auto adapted = [](models::Model& model) {
    models::add_lora(
        model, {.rank = 3, .alpha = 6, .targets = {"q_proj", "o_proj", "gate", "gate_proj", "up_proj", "down_proj"}});
  };
  const Outcome one = run_experts(config, tensor_variant(1, 1), tokens, 4, adapted);
  for (const int ranks : {2, 4})
    expect_same_experts(one, run_experts(config, tensor_variant(4, ranks), tokens, 4, adapted), "adapters");
}

TEST(TensorExperts, In16Bits) {
  const RandomTokens tokens(800, 37);
  const std::string config = experts_like("mixtral");
  Variant one = tensor_variant(1, 1), two = tensor_variant(2, 2);
  one.dtype = two.dtype = DType::bf16;
  expect_same_experts(run_experts(config, one, tokens), run_experts(config, two, tokens), "bf16", 0.03);
}

TEST(TensorExperts, QuantizedExpertsAreRefused) {
  models::Model model = models::make(experts_like("mixtral"), "test");
  models::add_lora(model, {.rank = 3, .alpha = 6});
  models::quantize(model, QuantFormat::nf4);
  try {
    models::split_tensors(model, 2);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(error.line().find("for quantized experts"), std::string::npos) << error.line();
  }
}

TEST(TensorExperts, FlopsAreThoseOfOneRank) {
  models::Model alone = models::make(experts_like("mixtral"), "test"),
                split = models::make(experts_like("mixtral"), "test");
  models::split_tensors(split, 2);
  EXPECT_DOUBLE_EQ(split.train_flops_per_token(16), alone.train_flops_per_token(16));
}

}  // namespace
}  // namespace tessera::test
