// SPDX-License-Identifier: Apache-2.0
// Generation and evaluation by ranks that have parts of the same matrices: the tokens of one rank, its losses up to the
// order of sums, and of keys and values a rank's own heads alone.

#include <atomic>

#include "kernels/threads.hpp"
#include "models/quantize.hpp"
#include "runtime/infer/inference.hpp"
#include "runtime/shard/tensor.hpp"
#include "tests/train/tensor_runs.hpp"

namespace tessera::test {
namespace {

struct Placing {
  int world = 1, ranks = 1;
  const char* strategy = "3";
  int group = 0;
  bool copies = false;
  Stream::Mode streams = Stream::Mode::threaded;
  [[nodiscard]] std::string str() const {
    return strfmt("%d ranks, %d of a matrix, %s, copies %d", world, ranks, strategy, copies);
  }
};

const Placing placings[] = {{.world = 2, .ranks = 2},
                            {.world = 2, .ranks = 2, .strategy = "0", .streams = Stream::Mode::deferred},
                            {.world = 4, .ranks = 2, .copies = true},
                            {.world = 4, .ranks = 2, .strategy = "2", .copies = true},
                            {.world = 4, .ranks = 2, .strategy = "HYBRID_SHARD", .group = 2},
                            {.world = 4, .ranks = 4},
                            {.world = 4, .ranks = 4, .strategy = "1", .copies = true}};

infer::InferenceOptions options_of(const models::Model& model, const Placing& where, plan::Purpose purpose) {
  infer::InferenceOptions options;
  options.run.purpose = purpose;
  options.run.model = &model;
  options.run.strategy =
      shard::with_tensor(shard::make_strategy(where.strategy, where.world, where.group, where.world), where.ranks);
  options.run.strategy.policy.param_dtype = model.dtype;
  const int data_ranks = where.world / where.ranks;
  options.run.batch = {.global_batch = 2 * data_ranks, .micro_batch = 2, .data_ranks = data_ranks, .accumulation = 1};
  options.run.tokens = row_length;
  options.comm_streams = where.streams;
  return options;
}

infer::GenerateRequest prompts(double temperature) {
  infer::GenerateRequest request;
  request.prompts = {{1, 2, 3}, {7}, {5, 6, 7, 8, 9, 10, 11}, {11, 12}, {0, 36, 0, 36, 0}};
  request.max_new_tokens = 9;
  request.sampling.temperature = temperature;
  return request;
}

std::size_t cache_bytes(const plan::RunPlan& plan) {
  std::size_t bytes = 0;
  for (const ArenaSlot& slot : plan.slots) bytes += slot.id.use == SlotUse::cache ? slot.bytes : 0;
  return bytes;
}

struct Generated {
  std::vector<infer::Completion> completions;
  std::size_t cache = 0;             // bytes of a rank
  std::int64_t told = 0, shown = 0;  // tokens of all ranks' callbacks, and of prompts
};

Generated generate_in_parts(const models::Model& model, const infer::GenerateRequest& request, const Placing& where) {
  kernels::set_threads(1);
  Generated out;
  std::atomic<std::int64_t> told = 0, shown = 0;
  run_local(
      where.world,
      [&](World& world) {
        infer::InferenceOptions options = options_of(model, where, plan::Purpose::generate);
        const infer::GenerationShape shape = infer::generation_shape(request, 2);
        options.run.tokens = shape.tokens;
        options.run.cache_tokens = shape.cache_tokens;
        infer::Inference inference(world, options);
        inference.arena().fill_with_pattern();
        inference.initialize(5);
        infer::GenerateRequest mine = request;
        mine.on_token = [&](std::size_t, std::int32_t) { ++told; };
        const infer::GenerateReport report = inference.generate(mine);
        shown += report.prefill.tokens;
        EXPECT_EQ(inference.arena().broken_canary(), "") << where.str();
        EXPECT_EQ(plan::compare_memory(inference.plan(), inference.measured_memory()), "") << where.str();
        if (world.rank() == 0) out = {report.completions, cache_bytes(inference.plan())};
      },
      where.copies);
  out.told = told;
  out.shown = shown;
  return out;
}

void expect_same_tokens(const std::function<models::Model(int ranks)>& make, int kv_heads, double temperature) {
  const infer::GenerateRequest request = prompts(temperature);
  const models::Model alone = make(1);
  const Generated one = generate_in_parts(alone, request, {});
  ASSERT_EQ(one.completions.size(), request.prompts.size());
  for (const Placing& where : placings) {
    const models::Model split = make(where.ranks);
    const Generated other = generate_in_parts(split, request, where);
    EXPECT_EQ(other.completions, one.completions) << alone.family << ", " << where.str();
    // Up to the alignment of keys and values in each of two layers.
    EXPECT_NEAR(static_cast<double>(other.cache), static_cast<double>(one.cache) / std::min(where.ranks, kv_heads),
                2 * 2 * 256)
        << where.str();
    EXPECT_EQ(other.told, one.told);
    EXPECT_EQ(other.shown, one.shown);
  }
}

/// Fewer key and value heads than ranks, windows, biases, learned positions, one matrix for q, k and v.
TEST(TensorInference, TheTokensOfOneRank) {
  for (const auto& [family, kv_heads, more] : {std::tuple{"qwen3", 4, R"(, "tie_word_embeddings": true)"},
                                               {"qwen2", 2, ""},
                                               {"llama", 1, R"(, "attention_bias": true, "mlp_bias": true)"},
                                               {"gemma2", 2, R"(, "sliding_window": 5, "query_pre_attn_scalar": 6)"},
                                               {"phi3", 4, R"(, "pad_token_id": 0)"}})
    expect_same_tokens([&](int ranks) { return tensor_model(tensor_config(family, kv_heads, more), ranks); }, kv_heads,
                       0);
  expect_same_tokens([](int ranks) { return tensor_model(config_json({.hidden = 24, .heads = 4}), ranks); }, 4, 1.5);
}

TEST(TensorInference, AdaptersAndQuantizedBases) {
  expect_same_tokens(
      [](int ranks) {
        models::Model model = models::make(tensor_config("qwen3", 2), "test");
        models::add_lora(model, {.rank = 3, .alpha = 6});
        models::quantize(model, QuantFormat::nf4);
        models::split_tensors(model, ranks);
        return model;
      },
      2, 0);
}

TEST(TensorInference, TheLossOfOneRank) {
  const RandomTokens tokens(800, 37);
  const auto evaluate = [&](const std::string& config, const Placing& where) {
    kernels::set_threads(1);
    const models::Model model = tensor_model(config, where.ranks);
    infer::EvalReport report;
    run_local(
        where.world,
        [&](World& world) {
          infer::Inference inference(world, options_of(model, where, plan::Purpose::evaluate));
          inference.initialize(5);
          const infer::EvalReport mine = inference.evaluate(tokens, 13);
          EXPECT_EQ(plan::compare_memory(inference.plan(), inference.measured_memory()), "") << where.str();
          if (world.rank() == 0) report = mine;
        },
        where.copies);
    return report;
  };
  for (const std::string& config : {tensor_config("llama", 2), config_json({.hidden = 24, .heads = 4}),
                                    tensor_config("gemma2", 1, R"(, "sliding_window": 5)")}) {
    const infer::EvalReport one = evaluate(config, {});
    EXPECT_EQ(one.tokens, 13 * row_length);
    for (const Placing& where : placings) {
      const infer::EvalReport other = evaluate(config, where);
      EXPECT_NEAR(other.loss, one.loss, 1e-5) << where.str();
      EXPECT_EQ(other.tokens, one.tokens);
      EXPECT_EQ(other.token_accuracy, one.token_accuracy);
    }
  }
}

}  // namespace
}  // namespace tessera::test
