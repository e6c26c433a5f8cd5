// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts on ranks that share rows: losses, gradients and balance losses are those of one rank, though each
// routes a part of a micro-batch.
#include "models/context.hpp"
#include "models/quantize.hpp"
#include "tests/train/experts_configs.hpp"
#include "tests/train/tensor_runs.hpp"

namespace tessera::test {
namespace {

using Change = std::function<void(models::Model&)>;

class ExpertsContext : public testing::TestWithParam<models::ContextKind> {
 protected:
  static Variant shared(int world, int ranks, const char* strategy = "3") {
    Variant v = tensor_variant(world, 1, strategy);
    v.context = ranks;
    return v;
  }
  static models::Model model(const std::string& config, const Variant& v, const Change& change = {}) {
    models::Model model = models::make(config, "test", v.dtype);
    if (change) change(model);
    models::share_rows(model, v.context, GetParam());
    return model;
  }
  static Outcome run_shared(const std::string& config, const Variant& v, const io::TokenStream& tokens, int steps = 4,
                            const Change& change = {}) {
    const models::Model of = model(config, v, change);
    return run({&of, &tokens, steps, "", /*evaluate=*/true, plan_is_exact}, v);
  }
};

void expect_same_experts(const Outcome& one, const Outcome& other, const std::string& what, double tolerance = 1e-5) {
  expect_same_curve(one, other, what, tolerance);
  ASSERT_EQ(one.aux_losses.size(), other.aux_losses.size());
  for (std::size_t i = 0; i < one.aux_losses.size(); ++i)
    EXPECT_NEAR(one.aux_losses[i], other.aux_losses[i], tolerance) << what << ", balance loss " << i;
  EXPECT_NEAR(one.eval_loss, other.eval_loss, tolerance) << what;
}

TEST_P(ExpertsContext, TenStepsAreThoseOfOneRank) {
  const RandomTokens tokens(800, 37);
  for (const char* family : {"mixtral", "qwen3_moe"}) {
    const std::string config = experts_like(family);
    const Outcome one = run_shared(config, shared(1, 1), tokens, 10);
    EXPECT_NEAR(one.aux_losses[0], 2, 0.5) << "two experts for each token, nearly balanced";
    for (const int ranks : {2, 4})
      expect_same_experts(one, run_shared(config, shared(ranks, ranks), tokens, 10), strfmt("%s, %d", family, ranks));
    expect_same_experts(one, run_shared(config, shared(4, 2), tokens, 10), "two groups of two");
  }
}

/// A loss that is measured and not trained on.
TEST_P(ExpertsContext, WithoutACoefficientTheLossIsPrinted) {
  const RandomTokens tokens(800, 37);
  const std::string config = experts_like("mixtral", 2, /*balance=*/0);
  expect_same_experts(run_shared(config, shared(1, 1), tokens), run_shared(config, shared(4, 2), tokens), "measured");
}

/// Documents that cross the borders of parts, and rows that are padded: padding is not counted.
TEST_P(ExpertsContext, PackedAndPaddedRowsAreThoseOfOneRank) {
  const std::string config = experts_like("qwen3_moe", 1);
  for (const io::Packing packing : {io::Packing::sequential, io::Packing::padded}) {
    const auto rows = document_rows(row_length, packing);
    const Outcome one = run_shared(config, shared(1, 1), *rows);
    for (const int ranks : {2, 4})
      expect_same_experts(one, run_shared(config, shared(ranks, ranks), *rows), strfmt("%d ranks", ranks));
  }
}

/// Of five rows in micro-batches of two on two groups, the last is short, or empty.
TEST_P(ExpertsContext, ShortAndEmptyMicroBatches) {
  const RandomTokens tokens(800, 37);
  const std::string config = experts_like("mixtral");
  for (const std::int64_t rows : {5, 6}) {
    Variant one = shared(1, 1), two = shared(4, 2);
    one.global_batch = two.global_batch = rows;
    expect_same_experts(run_shared(config, one, tokens, 3), run_shared(config, two, tokens, 3), two.str());
  }
}

TEST_P(ExpertsContext, StrategiesAndMemoryChangeNoBit) {
  const RandomTokens tokens(800, 37);
  const std::string config = experts_like("qwen3_moe");
  const Outcome of_first = run_shared(config, shared(4, 2, "0"), tokens, 3);
  const auto expect_bits = [&](const Variant& v) {
    const Outcome other = run_shared(config, v, tokens, 3);
    EXPECT_EQ(difference(of_first, other), "") << v.str();
    EXPECT_EQ(of_first.aux_losses, other.aux_losses) << v.str();
  };
  for (const char* strategy : {"1", "2", "3"}) expect_bits(shared(4, 2, strategy));
  for (int which = 0; which < 6; ++which) {
    Variant v = shared(4, 2);
    v.recompute = which == 0 || which == 4;
    v.selective = which == 1;
    v.keep_all = which == 2;
    v.copies = which == 3;
    if (which == 3) v.streams = Stream::Mode::deferred;
    v.offload_activations = which == 4;
    if (which == 5) v.experts = shard::ExpertUnits::block;
    expect_bits(v);
  }
}

TEST_P(ExpertsContext, AdaptersOfExpertsAndRouters) {
  const RandomTokens tokens(800, 37);
  const std::string config = experts_like("qwen3_moe");
  const auto adapted = [](models::Model& model) {
    models::add_lora(
        model, {.rank = 3, .alpha = 6, .targets = {"q_proj", "o_proj", "gate", "gate_proj", "up_proj", "down_proj"}});
  };
  const Outcome one = run_shared(config, shared(1, 1), tokens, 4, adapted);
  for (const int ranks : {2, 4})
    expect_same_experts(one, run_shared(config, shared(4, ranks), tokens, 4, adapted), strfmt("%d ranks", ranks));
}

/// A base whose experts are in 4 bits too.
TEST_P(ExpertsContext, QuantizedExperts) {
  const RandomTokens tokens(800, 37);
  const std::string config = experts_like("mixtral");
  const auto quantized = [](models::Model& model) {
    models::add_lora(model, {.rank = 3, .alpha = 6});
    models::quantize(model, QuantFormat::nf4);
  };
  expect_same_experts(run_shared(config, shared(1, 1), tokens, 4, quantized),
                      run_shared(config, shared(4, 2), tokens, 4, quantized), "4 bits");
}

/// Experts in one tensor, which weigh their inputs, beside a shared one.
TEST_P(ExpertsContext, FusedExperts) {
  const auto rows = packed_rows();
  expect_same_experts(run_shared(llama4_config, shared(1, 1), *rows), run_shared(llama4_config, shared(4, 2), *rows),
                      "llama4");
}

/// Of a rank's own heads, or of all.
TEST_P(ExpertsContext, Sinks) {
  const RandomTokens random(800, 37);
  const auto packed = packed_rows();
  for (const io::TokenStream* tokens : std::initializer_list<const io::TokenStream*>{&random, packed.get()}) {
    const Outcome one = run_shared(gpt_oss_config, shared(1, 1), *tokens);
    for (const int ranks : {2, 4})
      expect_same_experts(one, run_shared(gpt_oss_config, shared(4, ranks), *tokens), strfmt("%d ranks", ranks));
  }
  const Outcome of_zero0 = run_shared(gpt_oss_config, shared(4, 2, "0"), random, 3);
  Variant recomputing = shared(4, 2);
  recomputing.recompute = true;
  for (const Variant& v : {shared(4, 2), recomputing})
    EXPECT_EQ(difference(of_zero0, run_shared(gpt_oss_config, v, random, 3)), "") << v.str();
}

TEST_P(ExpertsContext, In16Bits) {
  const RandomTokens tokens(800, 37);
  const std::string config = experts_like("mixtral");
  Variant one = shared(1, 1), two = shared(2, 2), zero0 = shared(2, 2, "0");
  for (Variant* v : {&one, &two, &zero0}) v->dtype = DType::bf16;
  const Outcome of_two = run_shared(config, two, tokens);
  expect_same_experts(run_shared(config, one, tokens), of_two, "bf16", 0.03);
  EXPECT_EQ(difference(of_two, run_shared(config, zero0, tokens)), "");
}

/// Once a micro-batch, after the last layer; evaluation has no such exchange, nor has one rank stages of the head.
TEST_P(ExpertsContext, StatisticsAreExchangedOnceAMicroBatch) {
  const RandomTokens tokens(800, 37);
  const std::string config = experts_like("mixtral", 4);
  constexpr std::int64_t layers = 2, experts = 4, micro_batches = 2, head_dim = 6, heads = 4;
  const auto exchanges = [](const shard::Schedule& schedule) {
    std::int64_t count = 0;
    for (const shard::Instruction& in : schedule.list)
      if (in.op == shard::Op::exchange && in.module + 1 == static_cast<int>(schedule.modules.size())) ++count;
    return count;
  };
  for (const int ranks : {1, 2, 4}) {
    const Variant v = shared(ranks, ranks);
    const models::Model of = model(config, v);
    const auto counted = [&](train::Trainer& trainer) {
      if (trainer.world().rank() != 0) return;
      const plan::RunPlan& plan = trainer.plan();
      EXPECT_EQ(exchanges(plan.train), ranks > 1 ? micro_batches : 0);
      EXPECT_EQ(exchanges(plan.eval), 0);
      EXPECT_EQ(plan.train.modules.back().num_stages(), ranks > 1 ? 2 : 1);
      if (ranks == 1) return;
      // Forward and backward of each layer, as for dense models; then the statistics of all layers and two counts.
      const std::int64_t mine = 2 * row_length / ranks,
                         per_token = (GetParam() == models::ContextKind::gather ? 2 * heads * ranks : 4 * heads) *
                                     head_dim * static_cast<std::int64_t>(sizeof(float)),
                         attention = 2 * layers * micro_batches * mine * per_token * (ranks - 1) / ranks,
                         statistics = micro_batches * (ranks - 1) * (layers * 2 * experts + 2) * 8;
      EXPECT_EQ(static_cast<std::int64_t>(plan.costs.exchange.within_node + plan.costs.exchange.across_nodes),
                attention + statistics);
      EXPECT_EQ(trainer.exchange_traffic(Axis::context),
                plan.costs.traffic[static_cast<std::size_t>(plan.groups.exchange_index_of(Axis::context))]);
    };
    Variant copying = v;
    copying.copies = true;
    (void)run({&of, &tokens, 1, "", /*evaluate=*/false, counted}, copying);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ExpertsContext,
                         testing::Values(models::ContextKind::ulysses, models::ContextKind::gather),
                         [](const auto& kind) { return std::string(models::name_of(kind.param)); });

}  // namespace
}  // namespace tessera::test
