// SPDX-License-Identifier: Apache-2.0
// Parts of the vocabulary: embedding and head, tied or not, of sizes that the ranks do not divide, with adapters,
// weights of targets and frozen tables.
#include "tests/train/tensor_runs.hpp"

namespace tessera::test {
namespace {

constexpr const char* tied = R"(, "tie_word_embeddings": true)";

std::string config_of(int vocab, const char* more = "") {
  return strfmt(R"({"model_type": "llama", "vocab_size": %d, "max_position_embeddings": 16, "hidden_size": 20,
    "num_hidden_layers": 1, "num_attention_heads": 4, "head_dim": 6, "intermediate_size": 28 %s})",
                vocab, more);
}

const ParamSpec& param_of(const models::Model& model, const std::string& name) {
  return *std::ranges::find(model.params, name, &ParamSpec::name);
}

TEST(TensorVocabulary, ARankHasItsRowsOfBothTables) {
  for (const auto& [vocab, largest] : {std::pair{37, 10}, {38, 10}, {40, 10}, {41, 11}}) {
    const models::Model model = tensor_model(config_of(vocab), 4);
    for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
      EXPECT_EQ(param_of(model, name).shape, (Shape{largest, 20}));
      EXPECT_EQ(param_of(model, name).whole_shape(), (Shape{vocab, 20}));
    }
    EXPECT_EQ(model.num_params(), tensor_model(config_of(vocab), 1).num_params());
  }
  EXPECT_EQ(tensor_model(config_of(37, tied), 4).params.size(), tensor_model(config_of(37), 4).params.size() - 1);
}

TEST(TensorVocabulary, AnyVocabularyIsThatOfOneRank) {
  for (const char* more : {"", tied})
    for (const int vocab : {5, 6, 32, 63}) {
      const RandomTokens tokens(800, vocab);
      const std::string config = config_of(vocab, more);
      const Outcome one = run_tensor(config, tensor_variant(1, 1), tokens, 4);
      for (const auto& [world, ranks] : {std::pair{2, 2}, {4, 2}, {4, 4}}) {
        const Outcome zero0 = run_tensor(config, tensor_variant(world, ranks, "0"), tokens, 4);
        expect_same_curve(one, zero0, strfmt("%d on %d of %d", vocab, ranks, world));
        for (const char* strategy : {"1", "2", "3"})
          EXPECT_EQ(difference(zero0, run_tensor(config, tensor_variant(world, ranks, strategy), tokens, 4)), "");
      }
    }
}

TEST(TensorVocabulary, PaddingStaysZero) {
  const RandomTokens tokens(800, 37);
  const models::Model model = tensor_model(config_of(37, tied), 2);
  const auto check = [&](train::Trainer& trainer) {
    const shard::ShardLayout& layout = trainer.plan().layout;
    const auto param = static_cast<int>(&param_of(model, "model.embed_tokens.weight") - model.params.data());
    const int unit = layout.unit_of(param);
    const std::int64_t padding = layout.offset_of(param) + std::int64_t{18} * 20;  // behind 18 rows of the second part
    for (const auto& view : trainer.shards()) {
      if (view.unit != unit || view.part != 1) continue;
      const std::vector<float> values = as_floats(view.data);
      const std::int64_t first = view.shard * layout.shard_numel(unit);
      for (std::int64_t at = padding - first; at < padding - first + 20; ++at)
        EXPECT_TRUE(at < 0 || at >= layout.shard_numel(unit) || values[static_cast<std::size_t>(at)] == 0.0F) << at;
    }
  };
  (void)run({&model, &tokens, 3, "", false, check}, tensor_variant(4, 2));
}

TEST(TensorVocabulary, WeightsOfTargetsAndEvaluation) {
  const WeightedTokens tokens(std::make_shared<RandomTokens>(800, 37), {1.0F, 0.5F, 2.0F, 0.0F, 1.5F});
  const std::string config = tensor_config("gemma2", 2, R"(, "sliding_window": 5, "query_pre_attn_scalar": 6)");
  const auto of = [&](int world, int ranks) {
    const models::Model model = tensor_model(config, ranks);
    return run({&model, &tokens, 4, "", /*evaluate=*/true, plan_is_exact}, tensor_variant(world, ranks));
  };
  const Outcome one = of(1, 1);
  for (const auto& [world, ranks] : {std::pair{4, 2}, {4, 4}}) {
    const Outcome other = of(world, ranks);
    expect_same_curve(one, other, strfmt("%d of %d", ranks, world));
    EXPECT_NEAR(one.eval_loss, other.eval_loss, 1e-5);
    EXPECT_EQ(one.generated, other.generated);
  }
}

/// A of an embedding's adapter has the columns of the part, B of a head's the rows.
TEST(TensorVocabulary, AdaptersOfEmbeddingAndHead) {
  const RandomTokens tokens(800, 37);
  const auto of = [&](const char* strategy, int world, int ranks, const std::vector<std::string>& targets,
                      const std::vector<std::string>& saved) {
    models::Model model = models::make(tensor_config("llama", 2), "test");
    models::add_lora(model, {.rank = 3, .alpha = 6, .targets = targets, .modules_to_save = saved});
    models::split_tensors(model, ranks);
    return run({&model, &tokens, 4, "", /*evaluate=*/true, plan_is_exact}, tensor_variant(world, ranks, strategy));
  };
  using Names = std::vector<std::string>;
  for (const auto& [targets, saved] : {std::pair{Names{"embed_tokens", "lm_head"}, Names{}},
                                       {Names{"lm_head"}, Names{}},
                                       {Names{"embed_tokens"}, Names{}},
                                       {Names{"q_proj", "embed_tokens"}, Names{"lm_head"}},
                                       {Names{"q_proj"}, Names{"embed_tokens"}}}) {
    const Outcome one = of("0", 1, 1, targets, saved);
    for (const int ranks : {2, 4}) {
      const Outcome other = of("0", 4, ranks, targets, saved);
      expect_same_curve(one, other, targets.front());
      EXPECT_NEAR(one.eval_loss, other.eval_loss, 1e-5);
      EXPECT_EQ(one.generated, other.generated);
      EXPECT_EQ(difference(other, of("3", 4, ranks, targets, saved)), "") << targets.front();
    }
  }
}

TEST(TensorVocabulary, FrozenTables) {
  const RandomTokens tokens(800, 37);
  for (const char* more : {"", tied})
    for (const FrozenSet& set : frozen_sets) {
      const auto of = [&](int world, int ranks) {
        models::Model model = models::make(tensor_config("qwen3", 2, more), "test");
        freeze(model, set.frozen);
        models::split_tensors(model, ranks);
        return run({&model, &tokens, 3, "", /*evaluate=*/true, plan_is_exact}, tensor_variant(world, ranks));
      };
      const Outcome one = of(1, 1), other = of(4, 2);
      expect_same_curve(one, other, set.name);
      EXPECT_NEAR(one.eval_loss, other.eval_loss, 1e-5) << set.name;
    }
}

}  // namespace
}  // namespace tessera::test
