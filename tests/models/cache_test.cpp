// SPDX-License-Identifier: Apache-2.0
// Generation with a KV cache equals generation without: every family, rows of different length, several tokens per
// pass.
#include <gtest/gtest.h>

#include <cmath>

#include "runner.hpp"

namespace tessera::test::cache {
namespace {

using models::BatchShape;
using Ids = std::vector<std::int32_t>;

constexpr const char* gpt2 =
    R"({"model_type": "gpt2", "vocab_size": 37, "n_positions": 40, "n_embd": 35, "n_layer": 3, "n_head": 5,
                                 "n_inner": 13})";

Ids made(std::int64_t count, std::int64_t vocab, std::int32_t seed) {
  Ids ids;
  for (std::int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<std::int32_t>((i * i * 7 + i * 3 + seed * 11) % vocab));
  return ids;
}

/// Largest difference of the logits between rows that grow with a cache and a full pass over each row alone.
class Cached {
 public:
  Cached(const char* config, DType dtype)
      : model_(models::make(config, "test", dtype)), with_(model_, {4, 30}), without_(model_, {1, 30}) {
    with_.randomize(3);
    without_.randomize(3);
  }

  /// Prompts as long as `lengths`, padded to the longest; then `passes` of `step` tokens per row.
  double distance(const Ids& lengths, int passes, std::int64_t step) {
    const auto rows = static_cast<std::int64_t>(lengths.size());
    const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
    std::vector<Ids> said;
    Ids ids(static_cast<std::size_t>(rows * longest), 1);
    for (std::int64_t b = 0; b < rows; ++b) {
      said.push_back(made(lengths[static_cast<std::size_t>(b)], model_.vocab, static_cast<std::int32_t>(b)));
      std::copy(said.back().begin(), said.back().end(), ids.begin() + b * longest);
    }
    with_.open_cache({rows, longest + passes * step, step});
    double worst = compare(with_.cached_logits({rows, longest}, ids, {}, lengths), said);
    for (int pass = 0; pass < passes; ++pass) {
      Ids next, positions;
      for (std::int64_t b = 0; b < rows; ++b) {
        Ids& row = said[static_cast<std::size_t>(b)];
        for (std::int64_t t = 0; t < step; ++t) {
          positions.push_back(static_cast<std::int32_t>(row.size()));
          next.push_back(static_cast<std::int32_t>((b * 5 + pass * 3 + t) % model_.vocab));
          row.push_back(next.back());
        }
      }
      worst = std::max(worst, compare(with_.cached_logits({rows, step}, next, positions, {}), said));
    }
    return worst;
  }

 private:
  double compare(const std::vector<double>& ours, const std::vector<Ids>& said) {
    double worst = 0;
    for (std::size_t b = 0; b < said.size(); ++b) {
      const auto theirs = without_.logits({1, static_cast<std::int64_t>(said[b].size())}, said[b]);
      double largest = 0;
      for (const double x : theirs) largest = std::max(largest, std::abs(x));
      for (std::size_t v = 0; v < theirs.size(); ++v) {
        const double d = std::abs(ours[b * theirs.size() + v] - theirs[v]) / largest;
        worst = d <= worst ? worst : d;  // NaN is the worst
      }
    }
    return worst;
  }

  models::Model model_;
  Runner with_, without_;
};

class CacheTest : public testing::TestWithParam<const char*> {};

TEST_P(CacheTest, RaggedRowsEqualAFullForwardPass) {
  EXPECT_LE(Cached(GetParam(), DType::f64).distance({7, 1, 12, 3}, 5, 1), 1e-12);
  EXPECT_LE(Cached(GetParam(), DType::f32).distance({7, 1, 12, 3}, 5, 1), 1e-5);
}

TEST_P(CacheTest, SeveralTokensAPassAreOneAfterTheOther) {
  EXPECT_LE(Cached(GetParam(), DType::f64).distance({5, 9}, 3, 4), 1e-12);
}

TEST_P(CacheTest, OneRowOfOneToken) { EXPECT_LE(Cached(GetParam(), DType::f64).distance({1}, 20, 1), 1e-12); }

constexpr const char* llama =
    R"({"model_type": "llama", "vocab_size": 37, "max_position_embeddings": 40, "hidden_size": 24,
  "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 29, "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0, "tie_word_embeddings": false, "hidden_act": "silu",
  "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 16}})";
constexpr const char* qwen2 =
    R"({"model_type": "qwen2", "vocab_size": 37, "max_position_embeddings": 40, "hidden_size": 20,
  "num_hidden_layers": 2, "num_attention_heads": 5, "num_key_value_heads": 1, "intermediate_size": 31, "rms_norm_eps": 1e-6,
  "rope_theta": 1000000.0, "tie_word_embeddings": true, "hidden_act": "silu", "use_sliding_window": false})";
constexpr const char* qwen3 =
    R"({"model_type": "qwen3", "vocab_size": 37, "max_position_embeddings": 40, "hidden_size": 18, "head_dim": 8,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 31, "rms_norm_eps": 1e-6,
  "rope_theta": 1000000.0, "tie_word_embeddings": true, "hidden_act": "silu", "use_sliding_window": false})";

constexpr const char* mistral =
    R"({"model_type": "mistral", "vocab_size": 37, "max_position_embeddings": 40, "hidden_size": 6,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 7,
  "sliding_window": 5})";
constexpr const char* phi3 =
    R"({"model_type": "phi3", "vocab_size": 37, "max_position_embeddings": 40, "hidden_size": 16,
  "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 7,
  "partial_rotary_factor": 0.5, "original_max_position_embeddings": 64, "sliding_window": 4, "rope_scaling":
  {"type": "longrope", "factor": 4.0, "short_factor": [1.0, 1.5], "long_factor": [1.0, 4.0]}})";
constexpr const char* olmo2 =
    R"({"model_type": "olmo2", "vocab_size": 37, "max_position_embeddings": 40, "hidden_size": 8,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 7, "attention_bias": true})";
constexpr const char* smollm3 =
    R"({"model_type": "smollm3", "vocab_size": 37, "max_position_embeddings": 40, "hidden_size": 8,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 7, "mlp_bias": true,
  "no_rope_layer_interval": 2, "use_sliding_window": true, "sliding_window": 3})";
constexpr const char* granite =
    R"({"model_type": "granite", "vocab_size": 37, "max_position_embeddings": 40, "hidden_size": 8,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 7, "mlp_bias": true, "embedding_multiplier": 1.5,
  "residual_multiplier": 0.4, "attention_multiplier": 0.3, "logits_scaling": 0.7, "tie_word_embeddings": true})";
constexpr const char* gemma2 =
    R"({"model_type": "gemma2", "vocab_size": 37, "max_position_embeddings": 40, "hidden_size": 6, "head_dim": 4,
  "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 7, "sliding_window": 3,
  "query_pre_attn_scalar": 3, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.0})";
constexpr const char* gemma3 =
    R"({"model_type": "gemma3_text", "vocab_size": 37, "max_position_embeddings": 40, "hidden_size": 6, "head_dim": 4,
  "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 7, "sliding_window": 3,
  "sliding_window_pattern": 2, "query_pre_attn_scalar": 3, "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "attention_bias": true})";

constexpr const char* gpt_oss =
    R"({"model_type": "gpt_oss", "vocab_size": 37, "max_position_embeddings": 40, "hidden_size": 6,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 5, "sliding_window": 3,
  "num_local_experts": 4, "num_experts_per_tok": 2, "swiglu_limit": 0.8, "output_router_logits": true, "router_aux_loss_coef": 0.5,
  "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "truncate": false, "original_max_position_embeddings": 8}})";

constexpr const char* llama4 =
    R"({"model_type": "llama4_text", "vocab_size": 37, "max_position_embeddings": 40, "hidden_size": 6,
  "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 5,
  "intermediate_size_mlp": 7, "num_local_experts": 4, "num_experts_per_tok": 2, "interleave_moe_layer_step": 2,
  "no_rope_layer_interval": 3})";

/// Tokens of a row that the cache of each layer of a model holds; one key and one value of it have `width` numbers.
std::vector<std::size_t> cached_tokens(const char* config, std::size_t width, models::CacheShape capacity) {
  const models::Model model = models::make(config, "test", DType::f32);
  std::vector<std::size_t> tokens;
  for (const auto& module : model.modules)
    if (const std::size_t bytes = module->cache_bytes(capacity, DType::f32); bytes > 0)
      tokens.push_back(bytes / (static_cast<std::size_t>(capacity.batch) * width * 2 * sizeof(float)));
  return tokens;
}

TEST(CacheOfAWindow, HoldsNoMoreThanTheWindow) {
  using Tokens = std::vector<std::size_t>;  // rows of 32 keys and values are multiples of the arena's alignment
  EXPECT_EQ(cached_tokens(mistral, 8, {32, 20}), Tokens({5, 5}));
  EXPECT_EQ(cached_tokens(mistral, 8, {32, 20, 4}), Tokens({8, 8}));
  EXPECT_EQ(cached_tokens(mistral, 8, {32, 4}), Tokens({4, 4}));
  EXPECT_EQ(cached_tokens(gemma3, 4, {32, 20}), Tokens({3, 20, 3}));
  EXPECT_EQ(cached_tokens(gpt_oss, 8, {32, 20}), Tokens({3, 20}));
  EXPECT_EQ(cached_tokens(llama, 8, {32, 20}), Tokens({20, 20}));
}

INSTANTIATE_TEST_SUITE_P(Families, CacheTest,
                         testing::Values(gpt2, llama, qwen2, qwen3, mistral, phi3, olmo2, smollm3, granite, gemma2,
                                         gemma3, gpt_oss, llama4));

}  // namespace
}  // namespace tessera::test::cache
