// SPDX-License-Identifier: Apache-2.0
// Context parallelism, by all-to-all of heads and by gathered keys and values: ranks that share rows give what one rank
// gives with the same rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "io/data/packing.hpp"
#include "models/context.hpp"
#include "models/quantize.hpp"
#include "runtime/shard/context.hpp"
#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

constexpr std::int64_t row_tokens = 16;

/// Like Qwen3 (qk-norm and RoPE) or, without `qk_norm`, like Llama.
std::string context_config(int kv_heads, bool qk_norm = true, int heads = 4) {
  return strfmt(
      R"({"model_type": "%s", "vocab_size": 37, "max_position_embeddings": 16, "hidden_size": 20, "num_hidden_layers": 2,
  "num_attention_heads": %d, "num_key_value_heads": %d, "head_dim": 6, "intermediate_size": 26, "tie_word_embeddings": true})",
      qk_norm ? "qwen3" : "llama", heads, kv_heads);
}

/// Norms after attention and MLP: with windows and soft caps; with QK norms and two RoPEs; over all heads of q and of
/// k.
std::vector<std::string> configs_with_norms_after() {
  const auto like = [](const char* family, int hidden, const char* more) {
    return strfmt(
        R"({"model_type": "%s", "vocab_size": 37, "max_position_embeddings": 16, "hidden_size": %d, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 26, "tie_word_embeddings": true%s})",
        family, hidden, more);
  };
  return {like("gemma2", 20, R"(, "head_dim": 6, "sliding_window": 5, "query_pre_attn_scalar": 6)"),
          like("gemma3_text", 20,
               R"(, "head_dim": 6, "sliding_window": 5, "sliding_window_pattern": 2, "query_pre_attn_scalar": 6)"),
          like("olmo2", 24, "")};
}

std::string with_window(std::string config) {
  config.insert(config.rfind('}'), R"(, "sliding_window": 5)");
  return config;
}

/// Global batches of 4 rows, micro-batches of 2 on each group of ranks.
Variant context_variant(int world, int ranks, const char* strategy = "3") {
  return {.world = world,
          .strategy = strategy,
          .context = ranks,
          .global_batch = 4,
          .micro_batch = 2,
          .tokens = row_tokens};
}

std::shared_ptr<io::PackedStream> documents() {
  const auto tokens = std::make_shared<RandomTokens>(800, 37);
  std::vector<std::int64_t> ends;
  for (std::int64_t end = 0, k = 0; end < 800; ++k)
    ends.push_back(end = std::min<std::int64_t>(800, end + 3 + k * 5 % 9));
  return std::make_shared<io::PackedStream>(tokens, io::Documents{0, ends}, row_tokens, io::Packing::sequential);
}

void check_plan(train::Trainer& trainer) {
  const plan::RunPlan& plan = trainer.plan();
  EXPECT_EQ(plan::compare_memory(plan, trainer.measured_memory()), "");
}

class Context : public testing::TestWithParam<models::ContextKind> {
 protected:
  static bool gathers() { return GetParam() == models::ContextKind::gather; }
  static models::Model context_model(const std::string& config, int ranks, DType dtype = DType::f32) {
    models::Model model = models::make(config, "test", dtype);
    models::share_rows(model, ranks, GetParam());
    return model;
  }
  static Outcome run_context(const std::string& config, const Variant& v, const io::TokenStream& tokens,
                             int steps = 10) {
    const models::Model model = context_model(config, v.context, v.dtype);
    return run({&model, &tokens, steps, "", /*evaluate=*/false, check_plan}, v);
  }
};

double most_apart(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
  return most;
}

void expect_near(const Outcome& one, const Outcome& other, const std::string& what, double tolerance = 1e-5) {
  ASSERT_EQ(one.losses.size(), other.losses.size());
  EXPECT_EQ(one.tokens, other.tokens) << what;
  for (std::size_t s = 0; s < one.losses.size(); ++s) {
    EXPECT_NEAR(one.losses[s], other.losses[s], tolerance) << what << ", step " << s + 1;
    EXPECT_NEAR(one.norms[s], other.norms[s], 10 * tolerance) << what << ", step " << s + 1;
  }
  EXPECT_LT(most_apart(one.grads, other.grads), tolerance) << what;
}

TEST_P(Context, TenStepsAreThoseOfOneRank) {
  const RandomTokens tokens(800, 37);
  for (const int kv_heads : {1, 2, 4}) {
    const Outcome one = run_context(context_config(kv_heads), context_variant(1, 1), tokens);
    for (const int ranks : {2, 4})
      expect_near(one, run_context(context_config(kv_heads), context_variant(ranks, ranks), tokens),
                  strfmt("%d ranks, %d kv heads", ranks, kv_heads));
    expect_near(one, run_context(context_config(kv_heads), context_variant(4, 2), tokens), "two groups of two");
  }
}

TEST_P(Context, PackedRowsAreThoseOfOneRank) {
  const auto rows = documents();
  for (const int kv_heads : {1, 4}) {
    const Outcome one = run_context(context_config(kv_heads), context_variant(1, 1), *rows);
    for (const int ranks : {2, 4})
      expect_near(one, run_context(context_config(kv_heads), context_variant(ranks, ranks), *rows),
                  strfmt("%d ranks, %d kv heads", ranks, kv_heads));
  }
}

TEST_P(Context, OtherModels) {
  const RandomTokens tokens(800, 37);
  const std::string gpt2 = config_json({.hidden = 24, .heads = 4}), llama = context_config(2, /*qk_norm=*/false);
  const auto like = [&](const std::string& family) {
    return std::string(llama).replace(llama.find("llama"), std::strlen("llama"), family);
  };
  for (const std::string& config : {llama, like("qwen2"), with_window(like("mistral")), like("smollm3"), gpt2})
    expect_near(run_context(config, context_variant(1, 1), tokens), run_context(config, context_variant(2, 2), tokens),
                config);
}

TEST_P(Context, WindowsCrossTheBordersOfParts) {
  const auto rows = documents();
  const std::string config = with_window(context_config(2));
  const Outcome one = run_context(config, context_variant(1, 1), *rows);
  for (const int ranks : {2, 4}) expect_near(one, run_context(config, context_variant(ranks, ranks), *rows), "window");
}

TEST_P(Context, NormsAfterSublayers) {
  const RandomTokens random(800, 37);
  const auto packed = documents();
  for (const std::string& config : configs_with_norms_after())
    for (const io::TokenStream* tokens : std::initializer_list<const io::TokenStream*>{&random, packed.get()}) {
      const Outcome one = run_context(config, context_variant(1, 1), *tokens, 4);
      for (const int ranks : {2, 4})
        expect_near(one, run_context(config, context_variant(ranks, ranks), *tokens, 4), config);
    }
}

TEST_P(Context, StrategiesAndMemoryChangeNoBit) {
  const RandomTokens tokens(800, 37);
  const std::vector<std::string> after = configs_with_norms_after();
  for (const auto& [config, ranks] :
       {std::pair{context_config(1), 2}, {context_config(1), 4}, {after.front(), 2}, {after.back(), 2}}) {
    const Variant first = context_variant(4, ranks, "0");
    const Outcome of_first = run_context(config, first, tokens, 3);
    for (const char* strategy : {"2", "3"})
      EXPECT_EQ(difference(of_first, run_context(config, context_variant(4, ranks, strategy), tokens, 3)), "")
          << strategy;
    for (int which = 0; which < 4; ++which) {
      Variant v = context_variant(4, ranks);
      v.recompute = which == 0;
      v.selective = which == 1;
      v.keep_all = which == 2;
      v.copies = which == 3;
      if (which == 3) v.streams = Stream::Mode::deferred;
      EXPECT_EQ(difference(of_first, run_context(config, v, tokens, 3)), "") << v.str();
    }
  }
}

/// Where states and activations lie changes no bit.
TEST_P(Context, OffloadsChangeNoBit) {
  const RandomTokens tokens(800, 37);
  const std::string config = context_config(1);
  using shard::Tier;
  const Outcome of_first = run_context(config, context_variant(4, 2), tokens, 3);
  for (const bool recompute : {false, true})
    for (const bool activations : {false, true}) {
      Variant v = context_variant(4, 2);
      v.recompute = recompute;
      v.offload_activations = activations;
      if (!activations) v.placement = {Tier::host, Tier::host, Tier::host};
      EXPECT_EQ(difference(of_first, run_context(config, v, tokens, 3)), "") << v.str();
    }
}

/// Masks of dropout belong to tokens, whichever rank has them. A frozen base may be quantized.
TEST_P(Context, AdaptersAndFrozenParameters) {
  const RandomTokens tokens(800, 37);
  enum class What { adapters, quantized, frozen };
  const auto adapted = [&](int ranks, What what) {
    models::Model model = models::make(context_config(2), "test");
    if (what == What::frozen) freeze(model, frozen_sets[1].frozen);
    else models::add_lora(model, {.rank = 3, .alpha = 6, .dropout = 0.3});
    if (what == What::quantized) models::quantize(model, QuantFormat::nf4);
    models::share_rows(model, ranks, GetParam());
    return model;
  };
  for (const What what : {What::adapters, What::quantized, What::frozen}) {
    const models::Model alone = adapted(1, what);
    const Outcome one = run({&alone, &tokens, 4, "", false, check_plan}, context_variant(1, 1));
    for (const int ranks : {2, 4}) {
      const models::Model shared = adapted(ranks, what);
      expect_near(one, run({&shared, &tokens, 4, "", false, check_plan}, context_variant(4, ranks)),
                  strfmt("%d ranks, %d", ranks, static_cast<int>(what)));
    }
  }
}

TEST_P(Context, FlopsAreThoseOfOneRank) {
  for (const int which : {-1, 1, 4}) {
    const auto flops = [&](int ranks) {
      models::Model model = models::make(context_config(2), "test");
      if (which < 0) models::add_lora(model, {.rank = 3, .alpha = 6});
      else freeze(model, frozen_sets[which].frozen);
      models::share_rows(model, ranks, GetParam());
      return model.train_flops_per_token(16);
    };
    EXPECT_DOUBLE_EQ(flops(2), flops(1)) << which;
  }
}

/// Ranks that share rows pad them further: a token of a row has the number that it has on one rank.
TEST_P(Context, PaddedRowsHaveTheMasksOfOneRank) {
  const auto tokens = std::make_shared<RandomTokens>(800, 37);
  std::string config = context_config(2);
  const std::string positions = "\"max_position_embeddings\": 16";
  config.replace(config.find(positions), positions.size(), "\"max_position_embeddings\": 32");
  const auto of = [&](int ranks, std::int64_t length) {
    std::vector<std::int64_t> ends;
    for (std::int64_t end = 0, k = 0; end < 800; ++k)
      ends.push_back(end = std::min<std::int64_t>(800, end + 3 + k * 5 % 9));
    const io::PackedStream rows(tokens, io::Documents{0, ends}, length, io::Packing::padded);
    models::Model model = models::make(config, "test");
    models::add_lora(model, {.rank = 3, .alpha = 6, .dropout = 0.3});
    models::share_rows(model, ranks, GetParam());
    Variant v = context_variant(ranks, ranks);
    v.tokens = length;
    v.row_stride = 16;
    return run({&model, &rows, 4, "", false, {}}, v);
  };
  expect_near(of(1, 16), of(2, 32), "padded");
}

TEST_P(Context, In16Bits) {
  const RandomTokens tokens(800, 37);
  Variant one = context_variant(1, 1), two = context_variant(2, 2), zero0 = context_variant(2, 2, "0");
  for (Variant* v : {&one, &two, &zero0}) v->dtype = DType::bf16;
  const Outcome of_two = run_context(context_config(1), two, tokens, 4);
  expect_near(run_context(context_config(1), one, tokens, 4), of_two, "bf16", 0.02);
  EXPECT_EQ(difference(of_two, run_context(context_config(1), zero0, tokens, 4)), "");
}

TEST_P(Context, HybridAndReductionsGiveWhatOneRankGives) {
  const RandomTokens tokens(800, 37);
  const std::string config = context_config(2);
  const Outcome one = run_context(config, context_variant(1, 1), tokens, 4);
  for (const shard::Reduce reduce : {shard::Reduce::each, shard::Reduce::shard_each, shard::Reduce::last}) {
    Variant v = context_variant(4, 2, "HYBRID_SHARD");
    v.group = 2;
    v.reduce = reduce;
    v.micro_batch = 1;
    expect_near(one, run_context(config, v, tokens, 4), v.str());
  }
}

/// Of five rows in micro-batches of two on two groups, the last is short, or empty.
TEST_P(Context, ShortAndEmptyMicroBatches) {
  const RandomTokens tokens(800, 37);
  const std::string config = context_config(2);
  for (const std::int64_t rows : {5, 6}) {
    Variant one = context_variant(1, 1), two = context_variant(4, 2);
    one.global_batch = two.global_batch = rows;
    expect_near(run_context(config, one, tokens, 3), run_context(config, two, tokens, 3), two.str());
  }
}

TEST_P(Context, BytesAreThoseOfTheFormula) {
  const RandomTokens tokens(800, 37);
  for (const int ranks : {2, 4}) {
    const std::string config = context_config(1);
    const models::Model model = context_model(config, ranks);
    const Variant v = context_variant(ranks, ranks);
    TrafficCount before;
    const auto counted = [&](train::Trainer& trainer) {
      if (trainer.world().rank() != 0) return;
      const plan::RunPlan& plan = trainer.plan();
      const int group = plan.groups.exchange_index_of(Axis::context);
      ASSERT_GE(group, 0);
      TrafficCount sum = before;
      sum += plan.costs.traffic[static_cast<std::size_t>(group)];
      EXPECT_EQ(trainer.exchange_traffic(Axis::context), sum);
      // Forward and backward of 2 layers, 2 micro-batches of 2 rows: q, k and v, where each rank has one kv head, and
      // the output, of which a rank keeps its own part; or k and v of the others' tokens, and their gradients.
      const std::int64_t per_token = (gathers() ? 2 * ranks : 4 + 2 * ranks + 4) * 6 * 4, mine = 2 * row_tokens / ranks;
      const std::int64_t bytes = 2 * 2 * 2 * mine * per_token * (ranks - 1) / ranks;
      EXPECT_EQ(static_cast<std::int64_t>(plan.costs.exchange.within_node + plan.costs.exchange.across_nodes), bytes);
      before = trainer.exchange_traffic(Axis::context);
    };
    Variant copying = v;
    copying.copies = true;
    (void)run({&model, &tokens, 2, "", /*evaluate=*/false, counted}, copying);
  }
}

TEST_P(Context, ARankHasAPartOfTheActivations) {
  const auto activations = [](int ranks) {
    const models::Model model = context_model(context_config(4), ranks);
    train::TrainerOptions options = options_of(model, context_variant(4, ranks, "0"), 1);
    options.run.batch = plan::solve_batch(4, 4, 1, 1);
    options.run.batch.data_ranks = 4 / ranks;
    options.run.topology.ranks_per_node = 4;
    std::size_t bytes = 0;
    for (const ArenaSlot& slot : plan::make_plan(options.run).slots)
      if (slot.category == Category::activations) bytes += slot.bytes;
    return static_cast<double>(bytes);
  };
  // Gathered keys and values are those of whole rows, on every rank.
  EXPECT_NEAR(activations(4) / activations(2), 0.5, gathers() ? 0.2 : 0.02);
}

TEST_P(Context, LossesOfEvaluation) {
  const RandomTokens tokens(800, 37);
  const std::string config = context_config(2);
  const models::Model alone = context_model(config, 1), shared = context_model(config, 2);
  const Outcome one = run({&alone, &tokens, 1, "", /*evaluate=*/true, {}}, context_variant(1, 1)),
                two = run({&shared, &tokens, 1, "", /*evaluate=*/true, {}}, context_variant(2, 2));
  EXPECT_NEAR(one.eval_loss, two.eval_loss, 1e-5);
}

struct Asked {
  std::string config;
  int ranks;
  std::optional<models::ContextKind> kind;
};

/// The kind that is chosen, or the line of the error.
std::string chosen(const Asked& asked, const std::function<void(train::TrainerOptions&)>& change = {}) {
  try {
    models::Model model = models::make(asked.config, "test");
    models::share_rows(model, asked.ranks, asked.kind);
    train::TrainerOptions options = options_of(model, context_variant(4, asked.ranks), 1);
    options.run.topology.ranks_per_node = 4;
    if (change) change(options);
    (void)plan::make_plan(options.run);
    return name_of(model.context.kind);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.line();
  }
}

TEST(ContextKinds, HeadsAreExchangedWhereTheyCanBeDivided) {
  const std::string six = context_config(3, true, 6);
  EXPECT_EQ(chosen({context_config(2), 2, {}}), "ulysses");
  EXPECT_EQ(chosen({six, 4, {}}), "gather");
  EXPECT_EQ(chosen({six, 2, {}}), "gather");
  EXPECT_EQ(chosen({six, 2, models::ContextKind::gather}), "gather");
  EXPECT_THAT(chosen({six, 4, models::ContextKind::ulysses}),
              testing::AllOf(testing::HasSubstr("4 ranks, which cannot divide 6 heads with 3"),
                             testing::HasSubstr("--context_parallel_kind gather")));
}

TEST(ContextKinds, NoneNamedGivesWhatOneRankGives) {
  const RandomTokens tokens(800, 37);
  const auto of = [&](int ranks) {
    models::Model model = models::make(context_config(3, true, 6), "test");
    models::share_rows(model, ranks);
    return run({&model, &tokens, 10, "", /*evaluate=*/false, check_plan}, context_variant(ranks, ranks));
  };
  const Outcome one = of(1);
  for (const int ranks : {2, 4}) expect_near(one, of(ranks), strfmt("%d ranks", ranks));
}

TEST(ContextKinds, RefuseWhatTheyCannotDivide) {
  using testing::HasSubstr;
  const auto refusal = [](int ranks, const std::function<void(train::TrainerOptions&)>& change,
                          std::optional<models::ContextKind> kind = {}) {
    return chosen({context_config(2), ranks, kind}, change);
  };
  EXPECT_THAT(refusal(4, [](auto& o) { o.run.tokens = 14; }),
              HasSubstr("max_length 14 / context_parallel_size 4 = 3, and 2 tokens are left"));
  EXPECT_THAT(refusal(
                  4, [](auto& o) { o.run.tokens = 12; }, models::ContextKind::gather),
              HasSubstr("max_length 12 / (2 * context_parallel_size 4) = 1, and 4 tokens are left"));
  EXPECT_THAT(refusal(2, [](auto& o) { o.run.strategy.policy.reproducible = true; }), HasSubstr("--reproducible"));
  EXPECT_THAT(refusal(2, [](auto& o) { o.run.packed = true, o.run.flat_tokens = o.run.flat_eval_tokens = 64; }),
              HasSubstr("--padding_free"));
}

INSTANTIATE_TEST_SUITE_P(Kinds, Context, testing::Values(models::ContextKind::ulysses, models::ContextKind::gather),
                         [](const auto& kind) { return std::string(name_of(kind.param)); });

}  // namespace
}  // namespace tessera::test
