// SPDX-License-Identifier: Apache-2.0
// Tensor and context parallelism together: ranks that have parts of the same matrices, and ranks that have parts of the
// same rows, give what one rank gives with the same rows. Most runs are on 8 ranks: 2 x 2 x 2.
#include "models/context.hpp"
#include "tests/train/tensor_runs.hpp"

namespace tessera::test {
namespace {

class TensorContext : public testing::TestWithParam<models::ContextKind> {
 protected:
  using Change = std::function<void(models::Model&)>;
  static Variant both(int world, int context, int tensor, const char* strategy = "3") {
    Variant v = tensor_variant(world, tensor, strategy);
    v.context = context;
    return v;
  }
  static Outcome run_both(const std::string& config, const Variant& v, const io::TokenStream& tokens, int steps = 4,
                          const Change& change = {}) {
    models::Model model = models::make(config, "test", v.dtype);
    if (change) change(model);
    models::split_tensors(model, v.tensor);
    models::share_rows(model, v.context, GetParam());
    return run({&model, &tokens, steps, "", /*evaluate=*/true, plan_is_exact}, v);
  }
};

/// Key and value heads that both axes divide, that one does, and fewer than the ranks of each.
TEST_P(TensorContext, StepsAreThoseOfOneRank) {
  const RandomTokens tokens(800, 37);
  for (const auto& [family, kv_heads] : {std::pair{"qwen3", 4}, {"qwen2", 2}, {"llama", 1}}) {
    const std::string config = tensor_config(family, kv_heads);
    const Outcome one = run_both(config, both(1, 1, 1), tokens, 10);
    for (const auto& [world, context, tensor] : {std::tuple{8, 2, 2}, {4, 2, 2}, {8, 2, 4}}) {
      if (tensor == 4 && GetParam() == models::ContextKind::ulysses) continue;  // a rank has one head
      const Outcome other = run_both(config, both(world, context, tensor), tokens, 10);
      expect_same_curve(one, other, strfmt("%s, %d, %d x %d", family, kv_heads, context, tensor));
      EXPECT_NEAR(one.eval_loss, other.eval_loss, 1e-5);
    }
  }
}

/// Biases after the sum, learned positions, windows; documents that cross the borders of parts.
TEST_P(TensorContext, OtherModelsAndPackedRows) {
  const auto rows = packed_rows();
  for (const std::string& config :
       {config_json({.hidden = 24, .heads = 4}), tensor_config("mistral", 2, R"(, "sliding_window": 5)"),
        tensor_config("phi3", 4, R"(, "pad_token_id": 0)"),
        tensor_config("gemma2", 2, R"(, "sliding_window": 5, "query_pre_attn_scalar": 6)"), tensor_config("olmo2", 2)})
    expect_same_curve(run_both(config, both(1, 1, 1), *rows), run_both(config, both(8, 2, 2), *rows), config);
}

TEST_P(TensorContext, StrategiesAndMemoryChangeNoBit) {
  const RandomTokens tokens(800, 37);
  const std::string config = tensor_config("qwen3", 2);
  const Outcome of_first = run_both(config, both(8, 2, 2, "0"), tokens, 3);
  for (const char* strategy : {"1", "2", "3"})
    EXPECT_EQ(difference(of_first, run_both(config, both(8, 2, 2, strategy), tokens, 3)), "") << strategy;
  for (int which = 0; which < 5; ++which) {
    Variant v = both(8, 2, 2);
    v.recompute = which == 0 || which == 4;
    v.selective = which == 1;
    v.keep_all = which == 2;
    v.copies = which == 3;
    if (which == 3) v.streams = Stream::Mode::deferred;
    v.offload_activations = which == 4;
    EXPECT_EQ(difference(of_first, run_both(config, v, tokens, 3)), "") << v.str();
  }
}

/// One group of matrices and rows in a shard group, replicas of it, and sums over both.
TEST_P(TensorContext, HybridGroups) {
  const RandomTokens tokens(800, 37);
  const std::string config = tensor_config("llama", 2);
  Variant v = both(8, 2, 2, "HYBRID_SHARD");
  v.group = 4;
  v.micro_batch = 1;
  expect_same_curve(run_both(config, both(1, 1, 1), tokens), run_both(config, v, tokens), v.str());
}

/// The masks are those of one rank.
TEST_P(TensorContext, DropoutOfAdapters) {
  const auto rows = packed_rows();
  const std::string config =
      R"({"model_type": "llama", "vocab_size": 37, "max_position_embeddings": 16, "hidden_size": 24,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 64})";
  const auto adapted = [](models::Model& model) {
    models::add_lora(model, {.rank = 3, .alpha = 6, .dropout = 0.3, .targets = adapted_linears});
  };
  expect_same_curve(run_both(config, both(1, 1, 1), *rows, 4, adapted),
                    run_both(config, both(8, 2, 2), *rows, 4, adapted), "8 ranks");
}

TEST_P(TensorContext, In16Bits) {
  const RandomTokens tokens(800, 37);
  const std::string config = tensor_config("llama", 2);
  Variant one = both(1, 1, 1), eight = both(8, 2, 2);
  one.dtype = eight.dtype = DType::bf16;
  expect_same_curve(run_both(config, one, tokens), run_both(config, eight, tokens), "bf16", 0.02);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TensorContext,
                         testing::Values(models::ContextKind::ulysses, models::ContextKind::gather),
                         [](const auto& kind) { return std::string(models::name_of(kind.param)); });

}  // namespace
}  // namespace tessera::test
