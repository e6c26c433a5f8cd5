// SPDX-License-Identifier: Apache-2.0
// Tensor parallelism with divided tokens: ranks that have parts of the same matrices give what one rank gives with the
// same rows.
#include "runtime/shard/tensor.hpp"
#include "models/quantize.hpp"
#include "tests/train/tensor_runs.hpp"

namespace tessera::test {
namespace {

TEST(Tensor, TenStepsAreThoseOfOneRank) {
  const RandomTokens tokens(800, 37);
  for (const int kv_heads : {2, 4}) {
    const std::string config = tensor_config("qwen3", kv_heads, R"(, "tie_word_embeddings": true)");
    const Outcome one = run_tensor(config, tensor_variant(1, 1), tokens);
    expect_same_curve(one, run_tensor(config, tensor_variant(2, 2), tokens), "2 ranks");
    expect_same_curve(one, run_tensor(config, tensor_variant(4, 4), tokens), strfmt("4 ranks, %d", kv_heads));
    expect_same_curve(one, run_tensor(config, tensor_variant(4, 2), tokens), "two groups of two");
  }
}

/// Some ranks have the same key and value heads, whose gradients are sums over these ranks.
TEST(Tensor, FewerKeyAndValueHeadsThanRanks) {
  const RandomTokens tokens(800, 37);
  for (const auto& [family, kv_heads, ranks] :
       {std::tuple{"llama", 1, 2}, {"qwen2", 1, 4}, {"qwen2", 2, 4}, {"qwen3", 1, 2}, {"olmo2", 2, 4}}) {
    const std::string config = tensor_config(family, kv_heads);
    const Outcome one = run_tensor(config, tensor_variant(1, 1), tokens),
                  zero0 = run_tensor(config, tensor_variant(4, ranks, "0"), tokens);
    // OLMo 2's norms behind sublayers enlarge the roundings of step 9, where they divide by little: one rank alone
    // with micro-batches of 4 has gradients up to 1.6e-5 from its own, and a norm 2.1e-4 from it.
    const double gradients = family == std::string("olmo2") ? 5e-5 : 1e-5;
    expect_same_curve(one, zero0, strfmt("%s, %d on %d", family, kv_heads, ranks), 1e-5, gradients);
    EXPECT_EQ(difference(zero0, run_tensor(config, tensor_variant(4, ranks), tokens)), "") << family;
  }
}

/// Biases after attention and the MLP, and positions that are learned.
TEST(Tensor, Gpt2) {
  const RandomTokens tokens(800, 37);
  const std::string config = config_json({.hidden = 24, .heads = 4});
  const Outcome one = run_tensor(config, tensor_variant(1, 1), tokens);
  expect_same_curve(one, run_tensor(config, tensor_variant(4, 2), tokens), "two groups of two");
  expect_same_curve(one, run_tensor(config, tensor_variant(4, 4, "0"), tokens), "4 ranks");
  const auto packed = packed_rows();
  expect_same_curve(run_tensor(config, tensor_variant(1, 1), *packed, 4),
                    run_tensor(config, tensor_variant(4, 2), *packed, 4), "packed");
}

/// Biases, windows, fused matrices, norms after sublayers alone, over all heads too, soft caps, and none of these.
TEST(Tensor, Families) {
  const RandomTokens tokens(800, 37);
  for (const auto& [family, more] : {std::pair{"qwen2", ""},
                                     {"gemma2", R"(, "sliding_window": 5, "query_pre_attn_scalar": 6)"},
                                     {"gemma3_text", R"(, "sliding_window": 5, "sliding_window_pattern": 2)"},
                                     {"mistral", R"(, "sliding_window": 5)"},
                                     {"phi3", R"(, "pad_token_id": 0)"},
                                     {"olmo2", R"(, "attention_bias": true)"},
                                     {"smollm3", R"(, "no_rope_layer_interval": 2)"},
                                     {"granite", R"(, "residual_multiplier": 0.5, "embedding_multiplier": 3.0,
                                      "attention_multiplier": 0.4, "logits_scaling": 1.5)"},
                                     {"llama", R"(, "attention_bias": true, "mlp_bias": true)"}}) {
    const std::string config = tensor_config(family, 2, more);
    expect_same_curve(run_tensor(config, tensor_variant(1, 1), tokens, 4),
                      run_tensor(config, tensor_variant(2, 2), tokens, 4), family);
  }
}

TEST(Tensor, PackedRowsAreThoseOfOneRank) {
  const auto rows = packed_rows();
  const std::string config = tensor_config("llama", 4);
  const Outcome one = run_tensor(config, tensor_variant(1, 1), *rows);
  expect_same_curve(one, run_tensor(config, tensor_variant(4, 2), *rows), "two groups of two");
  expect_same_curve(one, run_tensor(config, tensor_variant(4, 4), *rows), "4 ranks");
}

void changes_no_bit(const std::string& config, const io::TokenStream& tokens) {
  const Outcome of_first = run_tensor(config, tensor_variant(4, 2, "0"), tokens, 3);
  for (const char* strategy : {"1", "2", "3"})
    EXPECT_EQ(difference(of_first, run_tensor(config, tensor_variant(4, 2, strategy), tokens, 3)), "") << strategy;
  for (int which = 0; which < 4; ++which) {
    Variant v = tensor_variant(4, 2);
    v.recompute = which == 0;
    v.selective = which == 1;
    v.keep_all = which == 2;
    v.copies = which == 3;
    if (which == 3) v.streams = Stream::Mode::deferred;
    EXPECT_EQ(difference(of_first, run_tensor(config, v, tokens, 3)), "") << v.str();
  }
}

TEST(Tensor, StrategiesAndMemoryChangeNoBit) {
  const RandomTokens tokens(800, 37);
  for (const std::string& config : {tensor_config("qwen3", 2), tensor_config("gemma2", 1, R"(, "sliding_window": 5)"),
                                    tensor_config("olmo2", 2), config_json({.heads = 4})})
    changes_no_bit(config, tokens);
}

TEST(Tensor, OffloadsChangeNoBit) {
  const RandomTokens tokens(800, 37);
  const std::string config = tensor_config("llama", 2);
  using shard::Tier;
  const Outcome of_first = run_tensor(config, tensor_variant(4, 2), tokens, 3);
  for (const bool recompute : {false, true})
    for (const bool activations : {false, true}) {
      Variant v = tensor_variant(4, 2);
      v.recompute = recompute;
      v.offload_activations = activations;
      if (!activations) v.placement = {Tier::host, Tier::host, Tier::host};
      EXPECT_EQ(difference(of_first, run_tensor(config, v, tokens, 3)), "") << v.str();
    }
}

/// A of a matrix whose inputs are divided has a part of them, and B of one whose outputs are; frozen ones are not
/// reduced.
TEST(Tensor, AdaptersAndFrozenParameters) {
  const RandomTokens tokens(800, 37);
  const auto adapted = [&](const char* family, int ranks, int which) {
    const char* more = std::string(family) == "phi3" ? R"(, "pad_token_id": 0)" : "";
    models::Model model = models::make(tensor_config(family, 2, more), "test");
    if (which < 0) models::add_lora(model, {.rank = 3, .alpha = 6});
    else freeze(model, frozen_sets[which].frozen);
    models::split_tensors(model, ranks);
    return model;
  };
  for (const auto& [family, which] : {std::pair{"qwen3", -1},
                                      {"phi3", -1},
                                      {"olmo2", -1},
                                      {"qwen2", 0},
                                      {"qwen2", 1},
                                      {"qwen3", 3},
                                      {"olmo2", 3},
                                      {"llama", 4}}) {
    const models::Model alone = adapted(family, 1, which);
    const Outcome one = run({&alone, &tokens, 4, "", false, plan_is_exact}, tensor_variant(1, 1));
    for (const char* strategy : {"0", "3"}) {
      const models::Model split = adapted(family, 2, which);
      EXPECT_EQ(split.train_flops_per_token(16), alone.train_flops_per_token(16));
      EXPECT_EQ(split.num_matmul_params(), alone.num_matmul_params());
      EXPECT_EQ(split.num_params(), alone.num_params());
      expect_same_curve(one, run({&split, &tokens, 4, "", false, plan_is_exact}, tensor_variant(4, 2, strategy)),
                        strfmt("%s, %d, %s", family, which, strategy));
    }
  }
}

/// The masks of adapters do not depend on how many ranks have parts of a matrix, or of a row, padded ones included.
TEST(Tensor, DropoutOfAdapters) {
  const auto tokens = std::make_shared<RandomTokens>(800, 37);
  const std::string config =
      R"({"model_type": "llama", "vocab_size": 37, "max_position_embeddings": 64, "hidden_size": 24,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 64})";
  const auto of = [&](int world, int ranks, io::Packing packing) {
    models::Model model = models::make(config, "test");
    models::add_lora(model, {.rank = 3, .alpha = 6, .dropout = 0.3, .targets = adapted_linears});
    models::split_tensors(model, ranks);
    const std::int64_t length = packing == io::Packing::padded ? 64 : row_length;
    const auto rows = document_rows(length, packing);
    Variant v = tensor_variant(world, ranks);
    v.tokens = length;
    v.row_stride = 16;
    return run({&model, rows.get(), 4, "", false, plan_is_exact}, v);
  };
  for (const auto packing : {io::Packing::sequential, io::Packing::padded}) {
    const Outcome one = of(1, 1, packing);
    expect_same_curve(one, of(4, 2, packing), "two groups of two");
    expect_same_curve(one, of(4, 4, packing), "4 ranks");
  }
}

/// A quantized matrix is replicated, and each rank multiplies by its part.
TEST(Tensor, QuantizedBases) {
  const RandomTokens tokens(800, 37);
  for (const auto& [family, kv_heads, format] : {std::tuple{"qwen2", 2, QuantFormat::nf4},
                                                 {"llama", 4, QuantFormat::int8},
                                                 {"olmo2", 2, QuantFormat::nf4},
                                                 {"gemma2", 2, QuantFormat::fp4_single}}) {
    const auto of = [&](int ranks) {
      models::Model model = models::make(tensor_config(family, kv_heads), "test");
      models::add_lora(model, {.rank = 3, .alpha = 6});
      models::quantize(model, format);
      models::split_tensors(model, ranks);
      return model;
    };
    const models::Model alone = of(1);
    const Outcome one = run({&alone, &tokens, 4, "", false, plan_is_exact}, tensor_variant(1, 1));
    for (const int ranks : {2, 4})
      for (const char* strategy : {"0", "3"}) {
        const models::Model split = of(ranks);
        expect_same_curve(one, run({&split, &tokens, 4, "", false, plan_is_exact}, tensor_variant(4, ranks, strategy)),
                          strfmt("%s, %d, %s", family, ranks, strategy));
      }
  }
}

/// Samples end to end in one row, without padding between them.
TEST(Tensor, PaddingFree) {
  const auto rows = document_rows(row_length, io::Packing::padded);
  const auto of = [&](int world, int ranks, double dropout) {
    models::Model model = models::make(
        R"({"model_type": "qwen3", "vocab_size": 37, "max_position_embeddings": 16, "hidden_size": 24,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 64})",
        "test");
    if (dropout > 0) models::add_lora(model, {.rank = 3, .alpha = 6, .dropout = dropout, .targets = adapted_linears});
    models::split_tensors(model, ranks);
    Variant v = tensor_variant(world, ranks);
    v.padding_free = true;
    return run({&model, rows.get(), 4, "", /*evaluate=*/true, {}}, v);
  };
  for (const double dropout : {0.0, 0.3}) {
    const Outcome one = of(1, 1, dropout);
    for (const auto& [world, ranks] : {std::pair{4, 2}, {4, 4}}) {
      const Outcome other = of(world, ranks, dropout);
      expect_same_curve(one, other, strfmt("%d ranks, dropout %g", ranks, dropout));
      EXPECT_NEAR(one.eval_loss, other.eval_loss, 1e-5);
    }
  }
}

TEST(Tensor, In16Bits) {
  const RandomTokens tokens(800, 37);
  const std::string config = tensor_config("llama", 2);
  Variant one = tensor_variant(1, 1), two = tensor_variant(4, 2), zero0 = tensor_variant(4, 2, "0");
  for (Variant* v : {&one, &two, &zero0}) v->dtype = DType::bf16;
  const Outcome of_two = run_tensor(config, two, tokens, 4);
  expect_same_curve(run_tensor(config, one, tokens, 4), of_two, "bf16", 0.02);
  EXPECT_EQ(difference(of_two, run_tensor(config, zero0, tokens, 4)), "");
}

TEST(Tensor, HybridAndReductionsGiveWhatOneRankGives) {
  const RandomTokens tokens(800, 37);
  const std::string config = tensor_config("llama", 2);
  const Outcome one = run_tensor(config, tensor_variant(1, 1), tokens, 4);
  for (const shard::Reduce reduce : {shard::Reduce::each, shard::Reduce::shard_each, shard::Reduce::last}) {
    Variant v = tensor_variant(8, 2, "HYBRID_SHARD");
    v.group = 4;
    v.reduce = reduce;
    v.micro_batch = 1;
    expect_same_curve(one, run_tensor(config, v, tokens, 4), v.str());
  }
}

/// Replicas of groups that have one layer: parts are not sharded, and norms, embedding and head are, over the tensor
/// axis; both are all-reduced over the same replicas.
TEST(Tensor, ShardGroupsOfTheTensorRanksAlone) {
  const RandomTokens tokens(800, 37);
  const std::string config = tensor_config("llama", 2);
  const Outcome one = run_tensor(config, tensor_variant(1, 1), tokens, 4);
  for (const shard::Reduce reduce : {shard::Reduce::each, shard::Reduce::shard_each, shard::Reduce::last}) {
    Outcome first;
    for (const char* strategy : {"HYBRID_SHARD", "HYBRID_SHARD_ZERO2", "1"}) {
      Variant v = tensor_variant(4, 2, strategy);
      v.group = 2;
      v.reduce = reduce;
      v.micro_batch = 1;
      v.recompute = strategy[0] == '1';
      v.copies = strategy[0] == '1';
      const Outcome other = run_tensor(config, v, tokens, 4);
      expect_same_curve(one, other, v.str());
      if (first.losses.empty()) first = other;
      EXPECT_EQ(difference(first, other), "") << v.str();
    }
  }
}

/// Of five rows in micro-batches of two on two groups, the last is short, or empty.
TEST(Tensor, ShortAndEmptyMicroBatches) {
  const RandomTokens tokens(800, 37);
  const std::string config = tensor_config("qwen3", 4);
  for (const std::int64_t rows : {5, 6}) {
    Variant one = tensor_variant(1, 1), two = tensor_variant(4, 2);
    one.global_batch = two.global_batch = rows;
    expect_same_curve(run_tensor(config, one, tokens, 3), run_tensor(config, two, tokens, 3), two.str());
  }
}

TEST(Tensor, LossesOfEvaluationAndSamples) {
  const RandomTokens tokens(800, 37);
  for (const auto& [config, ranks] : {std::pair{tensor_config("llama", 2), 2},
                                      {tensor_config("qwen2", 2), 4},
                                      {config_json({.hidden = 24, .heads = 4}), 2},
                                      {tensor_config("olmo2", 4), 4},
                                      {tensor_config("gemma2", 2, R"(, "sliding_window": 5)"), 2}}) {
    const models::Model alone = tensor_model(config, 1), split = tensor_model(config, ranks);
    const Outcome one = run({&alone, &tokens, 1, "", /*evaluate=*/true, {}}, tensor_variant(1, 1)),
                  two = run({&split, &tokens, 1, "", /*evaluate=*/true, plan_is_exact}, tensor_variant(4, ranks));
    EXPECT_NEAR(one.eval_loss, two.eval_loss, 1e-5);
    EXPECT_EQ(one.generated, two.generated);
  }
}

/// Forward and backward, 2 micro-batches of 2 rows: four exchanges of B·T·H numbers in each of 2 layers, one of the
/// embedding, one of the head, and 32 bytes of each token for its loss; of all a rank keeps its own part.
TEST(Tensor, BytesAreThoseOfTheFormula) {
  const RandomTokens tokens(800, 37);
  for (const int ranks : {2, 4}) {
    const models::Model model = tensor_model(tensor_config("llama", 4), ranks);
    TrafficCount before;
    const auto counted = [&](train::Trainer& trainer) {
      if (trainer.world().rank() != 0) return;
      const plan::RunPlan& plan = trainer.plan();
      const int group = plan.groups.exchange_index_of(Axis::tensor);
      ASSERT_GE(group, 0);
      TrafficCount sum = before;
      sum += plan.costs.traffic[static_cast<std::size_t>(group)];
      EXPECT_EQ(trainer.exchange_traffic(Axis::tensor), sum);
      const std::int64_t rows = (4 * 2 + 2) * 20 * 4, statistics = 32;
      const std::int64_t bytes = 2 * 2 * 2 * row_length * (rows + statistics) * (ranks - 1) / ranks;
      EXPECT_EQ(static_cast<std::int64_t>(plan.costs.exchange.within_node + plan.costs.exchange.across_nodes), bytes);
      before = trainer.exchange_traffic(Axis::tensor);
    };
    Variant copying = tensor_variant(ranks, ranks);
    copying.copies = true;
    (void)run({&model, &tokens, 2, "", /*evaluate=*/false, counted}, copying);
  }
}

/// Of a token, beside the model's: the head's logits, of the larger parts of 37 tokens, again; what is padding of
/// these; key and value heads that several ranks have; and OLMo 2's q and k, which all have.
TEST(Tensor, PlanCountsWhatSeveralRanksCompute) {
  const auto more = [](const char* family, int kv_heads, int ranks) {
    const models::Model model = tensor_model(tensor_config(family, kv_heads), ranks);
    train::TrainerOptions options = options_of(model, tensor_variant(4, ranks), 1);
    options.run.topology.ranks_per_node = 4;
    return plan::make_plan(options.run).costs.recompute_flops_per_step / static_cast<double>(4 * row_length);
  };
  // Forward is 2 FLOPs a weight, of rows of 20; backward twice that. Two layers, heads of 6.
  const double head2 = 2 * 20 * (38 + 3 * 1), head4 = 2 * 20 * (40 + 3 * 3);
  EXPECT_EQ(more("llama", 4, 1), 0);
  EXPECT_EQ(more("llama", 4, 2), head2);
  EXPECT_EQ(more("llama", 2, 4), head4 + 2 * 6 * 20 * (2 * 6 * (4 - 2)));
  EXPECT_EQ(more("olmo2", 2, 2), head2 + 2 * 6 * 20 * (4 * 6 + 2 * 6));
}

}  // namespace
}  // namespace tessera::test
