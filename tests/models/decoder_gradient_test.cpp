// SPDX-License-Identifier: Apache-2.0
// The Llama-like families against finite differences in double: every module alone, and the full model with its balance
// loss; with recomputation, short batches, and guarded memory of odd sizes.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/balance.hpp"
#include "runner.hpp"

namespace tessera::test::decoder_gradient {
namespace {

using models::BatchShape;

constexpr BatchShape shape{2, 5};
constexpr std::int32_t vocab = 11;

const char* const llama =
    R"({"model_type": "llama", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6, "num_hidden_layers": 1,
  "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 7, "attention_bias": true, "mlp_bias": true,
  "rope_scaling": {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}})";
const char* const qwen3 =
    R"({"model_type": "qwen3", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6, "num_hidden_layers": 2,
  "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 7, "tie_word_embeddings": true,
  "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 8}})";
const char* const mistral =
    R"({"model_type": "mistral", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 7,
  "sliding_window": 3})";
const char* const phi3 =
    R"({"model_type": "phi3", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 16,
  "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 7,
  "partial_rotary_factor": 0.5, "original_max_position_embeddings": 4, "sliding_window": 4, "rope_scaling":
  {"type": "longrope", "factor": 4.0, "short_factor": [1.0, 1.5], "long_factor": [1.0, 4.0]}})";
const char* const olmo2 =
    R"({"model_type": "olmo2", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 8,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 7, "attention_bias": true})";
const char* const smollm3 =
    R"({"model_type": "smollm3", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 8,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 7, "mlp_bias": true,
  "no_rope_layer_interval": 2, "use_sliding_window": true, "sliding_window": 3})";
const char* const granite =
    R"({"model_type": "granite", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 8,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 7, "mlp_bias": true, "embedding_multiplier": 1.5,
  "residual_multiplier": 0.4, "attention_multiplier": 0.3, "logits_scaling": 0.7, "tie_word_embeddings": true})";
const char* const gemma2 =
    R"({"model_type": "gemma2", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6, "head_dim": 4,
  "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 7, "sliding_window": 3,
  "query_pre_attn_scalar": 3, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 4.0})";
const char* const gemma3 =
    R"({"model_type": "gemma3_text", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6, "head_dim": 4,
  "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 7, "sliding_window": 3,
  "sliding_window_pattern": 2, "query_pre_attn_scalar": 3, "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "attention_bias": true})";
const char* const gpt_oss =
    R"({"model_type": "gpt_oss", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 5, "sliding_window": 3,
  "num_local_experts": 4, "num_experts_per_tok": 2, "swiglu_limit": 0.8, "output_router_logits": true, "router_aux_loss_coef": 0.5,
  "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "truncate": false, "original_max_position_embeddings": 8}})";
const char* const llama4 =
    R"({"model_type": "llama4_text", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6,
  "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 5,
  "intermediate_size_mlp": 7, "num_local_experts": 4, "num_experts_per_tok": 2, "interleave_moe_layer_step": 2,
  "no_rope_layer_interval": 3})";
const char* const experts =
    R"({"model_type": "qwen3_moe", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6, "num_hidden_layers": 3,
  "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 7, "moe_intermediate_size": 5, "num_experts": 4,
  "num_experts_per_tok": 2, "norm_topk_prob": true, "mlp_only_layers": [1]})";
const char* const balanced =
    R"({"model_type": "mixtral", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6, "num_hidden_layers": 2,
  "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 5, "num_local_experts": 4, "num_experts_per_tok": 2,
  "output_router_logits": true, "router_aux_loss_coef": 0.5})";

class DecoderGradients : public testing::TestWithParam<const char*> {
 protected:
  DecoderGradients() {
    runner.randomize(3);
    targets[4] = kernels::ignore_index;
  }
  std::vector<std::vector<double>> all_grads() const {
    std::vector<std::vector<double>> grads;
    for (std::size_t p = 0; p < model.params.size(); ++p) grads.push_back(values(runner.grad(static_cast<int>(p))));
    return grads;
  }

  models::Model model = models::make(GetParam(), "test", DType::f64);
  Runner runner{model, shape};
  std::vector<std::int32_t> ids = random_ids(shape, vocab, 1), targets = random_ids(shape, vocab, 2);
  double scale = 1.0 / 9;  // valid targets: the only micro-batch of its step
};

TEST_P(DecoderGradients, OfEveryModuleAlone) {
  if (model.router.balance > 0) GTEST_SKIP() << "its gradient comes from beyond a module";
  for (std::size_t m = 0; m < model.modules.size(); ++m) runner.check_module(m, shape, ids, targets);
}

TEST_P(DecoderGradients, OfTheFullModelWithItsBalanceLoss) {
  (void)runner.train(shape, ids, targets, scale);
  EXPECT_EQ(runner.sums.tokens, 9);
  const auto grads = all_grads();
  const auto loss = [&] {
    runner.sums = {};
    (void)runner.evaluate(shape, ids, targets);
    const double aux =
        model.router.layers > 0 ? kernels::balance_loss(runner.router, shape.batch * shape.tokens, -1) : 0;
    return runner.sums.loss.value() * scale + model.router.balance * aux;
  };
  for (std::size_t p = 0; p < model.params.size(); ++p) {
    const TensorView& param = runner.param(static_cast<int>(p));
    double largest = 0, error = 0;
    for (std::int64_t i = 0; i < param.numel(); ++i) {
      const double at = get(param, i), h = 1e-5;
      set(param, i, at + h);
      const double above = loss();
      set(param, i, at - h);
      const double below = loss();
      set(param, i, at);
      const double expected = (above - below) / (2 * h);
      largest = std::max(largest, std::abs(expected));
      error = std::max(error, std::abs(expected - grads[p][static_cast<std::size_t>(i)]));
    }
    EXPECT_LE(error, 1e-7 * largest + 1e-9) << model.params[p].name;
  }
}

TEST_P(DecoderGradients, RecomputingChangesNoBit) {
  (void)runner.train(shape, ids, targets, scale);
  const auto kept = all_grads();
  for (const bool selective : {false, true}) {
    runner.sums = {};
    (void)runner.train(shape, ids, targets, scale,
                       {.in_place = false, .recompute = true, .selective = selective, .accumulate = {}});
    EXPECT_EQ(kept, all_grads()) << selective;
  }
}

TEST_P(DecoderGradients, AccumulationAdds) {
  (void)runner.train(shape, ids, targets, scale);
  const auto once = all_grads();
  Step again;
  again.accumulate.assign(model.params.size(), 1);
  (void)runner.train(shape, ids, targets, scale, again);
  const auto twice = all_grads();
  for (std::size_t p = 0; p < once.size(); ++p)
    for (std::size_t i = 0; i < once[p].size(); ++i)
      EXPECT_NEAR(twice[p][i], 2 * once[p][i], 1e-13) << model.params[p].name;
}

TEST_P(DecoderGradients, OrderCountsThroughRotationAlone) {
  EXPECT_NE(runner.logits({1, 3}, {4, 7, 2}), runner.logits({1, 3}, {7, 4, 2}));
}

INSTANTIATE_TEST_SUITE_P(Families, DecoderGradients,
                         testing::Values(llama, qwen3, mistral, phi3, olmo2, smollm3, granite, gemma2, gemma3, gpt_oss,
                                         llama4, experts, balanced));

}  // namespace
}  // namespace tessera::test::decoder_gradient
