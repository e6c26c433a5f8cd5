// SPDX-License-Identifier: Apache-2.0
// Packed rows: loss and every gradient equal those of the documents alone, in every family; padding has no effect.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/balance.hpp"
#include "runner.hpp"
#include "runtime/base/rng.hpp"

namespace tessera::test::packed {
namespace {

using models::BatchShape;
using Ids = std::vector<std::int32_t>;
using Grads = std::vector<std::vector<double>>;

constexpr std::int32_t vocab = 11;
constexpr const char* gpt2 =
    R"({"model_type": "gpt2", "vocab_size": 11, "n_positions": 16, "n_embd": 6, "n_layer": 2, "n_head": 3})";
constexpr const char* llama =
    R"({"model_type": "llama", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 7,
  "rope_scaling": {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}})";
constexpr const char* qwen2 =
    R"({"model_type": "qwen2", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 8,
  "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 7})";
constexpr const char* qwen3 =
    R"({"model_type": "qwen3", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6,
  "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 7, "tie_word_embeddings": true,
  "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 8}})";
constexpr const char* mistral =
    R"({"model_type": "mistral", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 7,
  "sliding_window": 4})";
constexpr const char* phi3 =
    R"({"model_type": "phi3", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 16,
  "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 7,
  "partial_rotary_factor": 0.5, "original_max_position_embeddings": 32, "sliding_window": 4, "rope_scaling":
  {"type": "longrope", "factor": 4.0, "short_factor": [1.0, 1.5], "long_factor": [1.0, 4.0]}})";
constexpr const char* olmo2 =
    R"({"model_type": "olmo2", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 8,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 7, "attention_bias": true})";
constexpr const char* smollm3 =
    R"({"model_type": "smollm3", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 8,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 7, "mlp_bias": true,
  "no_rope_layer_interval": 2, "use_sliding_window": true, "sliding_window": 3})";
constexpr const char* granite =
    R"({"model_type": "granite", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 8,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 7, "mlp_bias": true, "embedding_multiplier": 1.5,
  "residual_multiplier": 0.4, "attention_multiplier": 0.3, "logits_scaling": 0.7, "tie_word_embeddings": true})";
constexpr const char* gemma2 =
    R"({"model_type": "gemma2", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6, "head_dim": 4,
  "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 7, "sliding_window": 3,
  "query_pre_attn_scalar": 3, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.0})";
constexpr const char* gemma3 =
    R"({"model_type": "gemma3_text", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6, "head_dim": 4,
  "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 7, "sliding_window": 3,
  "sliding_window_pattern": 2, "query_pre_attn_scalar": 3, "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "attention_bias": true})";
constexpr const char* gpt_oss =
    R"({"model_type": "gpt_oss", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 5, "sliding_window": 3,
  "num_local_experts": 4, "num_experts_per_tok": 2, "swiglu_limit": 0.8,
  "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "truncate": false, "original_max_position_embeddings": 8}})";
constexpr const char* llama4 =
    R"({"model_type": "llama4_text", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6,
  "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 5,
  "intermediate_size_mlp": 7, "num_local_experts": 4, "num_experts_per_tok": 2, "interleave_moe_layer_step": 2,
  "no_rope_layer_interval": 3})";
constexpr const char* experts =
    R"({"model_type": "qwen3_moe", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6,
  "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 7, "moe_intermediate_size": 5,
  "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": true})";
constexpr const char* balanced =
    R"({"model_type": "mixtral", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6,
  "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 5, "num_local_experts": 4,
  "num_experts_per_tok": 2, "output_router_logits": true, "router_aux_loss_coef": 0.5})";

/// Rows of documents, each with no target at its end; 0: a token of padding.
struct Packed {
  std::vector<std::vector<std::int64_t>> rows;
  Ids ids, targets, positions;

  explicit Packed(std::vector<std::vector<std::int64_t>> lengths) : rows(std::move(lengths)) {
    for (const auto& row : rows)
      for (const std::int64_t tokens : row) add(tokens);
  }
  void add(std::int64_t tokens) {
    for (std::int64_t t = 0; t < std::max<std::int64_t>(tokens, 1); ++t) {
      ids.push_back(static_cast<std::int32_t>(uniform(1, ids.size()) * vocab));
      targets.push_back(t + 1 < tokens ? static_cast<std::int32_t>(uniform(2, ids.size()) * vocab)
                                       : kernels::ignore_index);
      positions.push_back(static_cast<std::int32_t>(t));
    }
  }
  [[nodiscard]] BatchShape shape() const {
    BatchShape shape{static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(ids.size() / rows.size())};
    shape.packed = true;
    return shape;
  }
};

Grads grads_of(const Runner& runner, const models::Model& model) {
  Grads grads;
  for (std::size_t p = 0; p < model.params.size(); ++p) grads.push_back(values(runner.grad(static_cast<int>(p))));
  return grads;
}

void expect_near(const models::Model& model, const Grads& got, const Grads& expected) {
  for (std::size_t p = 0; p < expected.size(); ++p) {
    double largest = 0, error = 0;
    for (std::size_t i = 0; i < expected[p].size(); ++i) {
      largest = std::max(largest, std::abs(expected[p][i]));
      error = std::max(error, std::abs(got[p][i] - expected[p][i]));
    }
    EXPECT_GT(largest, 0) << model.params[p].name;
    EXPECT_LE(error, 1e-12 * largest) << model.params[p].name;
  }
}

class PackedRows : public testing::TestWithParam<const char*> {};

TEST_P(PackedRows, HaveTheLossAndGradientsOfTheirDocumentsAlone) {
  const models::Model model = models::make(GetParam(), "test", DType::f64);
  const Packed packed({{5, 2, 6}, {9, 3, 0}});
  Runner full(model, packed.shape()), alone(model, {1, 13});
  full.randomize(3);
  alone.randomize(3);
  const double scale = 1.0 / 20;  // valid targets
  full.packed = packed.positions;
  (void)full.train(packed.shape(), packed.ids, packed.targets, scale);
  EXPECT_EQ(full.sums.tokens, 20);

  Step step;
  std::ptrdiff_t first = 0;
  for (const auto& row : packed.rows)
    for (const std::int64_t tokens : row) {
      const auto part = [&](const Ids& all) {
        return Ids(all.begin() + first, all.begin() + first + std::max<std::int64_t>(tokens, 1));
      };
      if (tokens > 0) (void)alone.train({1, tokens}, part(packed.ids), part(packed.targets), scale, step);
      step.accumulate.assign(model.params.size(), 1);
      first += std::max<std::int64_t>(tokens, 1);
    }
  EXPECT_EQ(alone.sums.tokens, 20);
  EXPECT_EQ(alone.sums.correct, full.sums.correct);
  EXPECT_NEAR(alone.sums.loss.value(), full.sums.loss.value(), 1e-12);
  const Grads expected = grads_of(alone, model), got = grads_of(full, model);
  expect_near(model, got, expected);

  for (const bool selective : {false, true}) {
    full.sums = {};
    (void)full.train(packed.shape(), packed.ids, packed.targets, scale, {.recompute = true, .selective = selective});
    EXPECT_EQ(got, grads_of(full, model)) << selective;
  }
  full.sums = {};
  EXPECT_NEAR(full.evaluate(packed.shape(), packed.ids, packed.targets), alone.sums.loss.value() / 20, 1e-13);

  full.sums = {};
  full.packed.clear();  // documents that attend to each other are a different computation
  EXPECT_GT(std::abs(full.evaluate(packed.shape(), packed.ids, packed.targets) - alone.sums.loss.value() / 20), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Families, PackedRows,
                         testing::Values(gpt2, llama, qwen2, qwen3, mistral, phi3, olmo2, smollm3, granite, gemma2,
                                         gemma3, gpt_oss, llama4, experts));

TEST(PackedExperts, PaddingHasNoPartInTheBalanceLoss) {
  const models::Model model = models::make(balanced, "test", DType::f64);
  const Packed rows({{5}, {5}}), packed({{5, 5, 0, 0, 0}});
  Runner separate(model, rows.shape()), joint(model, packed.shape());
  separate.randomize(3);
  joint.randomize(3);
  joint.packed = packed.positions;
  Ids ids(packed.ids.begin(), packed.ids.begin() + 10), targets(packed.targets.begin(), packed.targets.begin() + 10);
  (void)separate.train(rows.shape(), ids, targets, 1.0 / 8);
  (void)joint.train(packed.shape(), packed.ids, packed.targets, 1.0 / 8);
  EXPECT_NEAR(joint.sums.loss.value(), separate.sums.loss.value(), 1e-12);
  for (const int layer : {-1, 0, 1})
    EXPECT_NEAR(kernels::balance_loss(joint.router, 10, layer), kernels::balance_loss(separate.router, 10, layer),
                1e-12)
        << layer;
  expect_near(model, grads_of(joint, model), grads_of(separate, model));
}

}  // namespace
}  // namespace tessera::test::packed
