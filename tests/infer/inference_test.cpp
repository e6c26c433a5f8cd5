// SPDX-License-Identifier: Apache-2.0
// Inference: the same tokens and losses at any number of ranks and any strategy, with and without key-value cache;
// memory as planned.

#include <gtest/gtest.h>

#include "kernels/threads.hpp"
#include "runtime/infer/inference.hpp"
#include "runtime/plan/activations.hpp"
#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

using infer::Completion;
using infer::GenerateRequest;

struct Where {
  int world = 1;
  std::string strategy = "3";
  int group = 0;
  bool copies = false, reshard = true;
  Stream::Mode streams = Stream::Mode::threaded;
  [[nodiscard]] std::string str() const {
    return strfmt("world %d strategy %s group %d copies %d reshard %d streams %d", world, strategy.c_str(), group,
                  copies, reshard, static_cast<int>(streams));
  }
};

const Where everywhere[] = {{.world = 1},
                            {.world = 2, .strategy = "0"},
                            {.world = 2, .strategy = "1", .copies = true},
                            {.world = 2, .streams = Stream::Mode::deferred},
                            {.world = 3},
                            {.world = 3, .copies = true},
                            {.world = 3, .strategy = "2", .copies = true, .streams = Stream::Mode::deferred},
                            {.world = 3, .copies = true, .reshard = false},
                            {.world = 4, .strategy = "HYBRID_SHARD", .group = 2},
                            {.world = 4, .strategy = "HYBRID_SHARD", .group = 2, .copies = true}};

infer::InferenceOptions options_of(const models::Model& model, const Where& where, plan::Purpose purpose) {
  infer::InferenceOptions options;
  options.run.purpose = purpose;
  options.run.model = &model;
  options.run.strategy = shard::make_strategy(where.strategy, where.world, where.group, where.world);
  auto& policy = options.run.strategy.policy;
  policy.reshard_after_forward = policy.reshard_after_forward && where.reshard;
  options.run.batch = {.global_batch = 2 * where.world, .micro_batch = 2, .data_ranks = where.world, .accumulation = 1};
  options.comm_streams = where.streams;
  return options;
}

void use(infer::InferenceOptions& options, const GenerateRequest& request) {
  const infer::GenerationShape shape = infer::generation_shape(request, 2);
  options.run.tokens = shape.tokens;
  options.run.cache_tokens = shape.cache_tokens;
}

GenerateRequest five_prompts() {
  GenerateRequest request;
  request.prompts = {{1, 2, 3}, {7}, {5, 6, 7, 8, 9, 10}, {11, 12}, {0, 36, 0, 36, 0}};
  request.max_new_tokens = 8;
  return request;
}

std::vector<Completion> generate(const models::Model& model, const GenerateRequest& request, const Where& where) {
  kernels::set_threads(1);
  std::vector<Completion> out;
  run_local(
      where.world,
      [&](World& world) {
        auto options = options_of(model, where, plan::Purpose::generate);
        use(options, request);
        infer::Inference inference(world, options);
        inference.initialize(5);
        const auto report = inference.generate(request);
        EXPECT_EQ(inference.arena().broken_canary(), "") << where.str();
        if (world.rank() == 0) out = report.completions;
      },
      where.copies);
  return out;
}

TEST(Inference, TheSameTokensAtAnyNumberOfRanksAndStrategy) {
  const models::Model model = models::make(config_json({}), "test");
  for (const double temperature : {0.0, 1.5}) {
    GenerateRequest request = five_prompts();
    request.sampling.temperature = temperature;
    if (temperature > 0)
      request.sampling.top_k = 30, request.sampling.top_p = 0.95, request.sampling.repetition_penalty = 1.2;
    const auto expected = generate(model, request, {});
    ASSERT_EQ(expected.size(), request.prompts.size());
    for (const Completion& c : expected) EXPECT_EQ(c.ids.size(), 8U);
    if (temperature > 0) { EXPECT_NE(expected[0].ids, expected[1].ids); }
    for (const Where& where : everywhere) EXPECT_EQ(generate(model, request, where), expected) << where.str();
  }
}

TEST(Inference, ACacheChangesNoToken) {
  const models::Model model = models::make(config_json({}), "test");
  GenerateRequest request = five_prompts();
  const auto cached = generate(model, request, {});
  request.max_new_tokens = 1;  // of prompts that grow: every pass is a prefill
  for (std::size_t i = 0; i < cached[0].ids.size(); ++i) {
    const auto next = generate(model, request, i % 2 == 0 ? Where{} : Where{.world = 3});
    for (std::size_t p = 0; p < next.size(); ++p) {
      EXPECT_EQ(next[p].ids.front(), cached[p].ids[i]) << p << " " << i;
      request.prompts[p].push_back(cached[p].ids[i]);
    }
  }
}

TEST(Inference, ARowEndsAtItsStopTokenOthersContinue) {
  const models::Model model = models::make(config_json({}), "test");
  GenerateRequest request = five_prompts();
  request.sampling.temperature = 2;  // different rows
  const auto full = generate(model, request, {});
  request.stop = {full[2].ids[3], 1000};
  for (const Where& where : {Where{}, Where{.world = 2}, Where{.world = 3, .copies = true}}) {
    const auto out = generate(model, request, where);
    ASSERT_EQ(out.size(), full.size());
    for (std::size_t p = 0; p < full.size(); ++p) {
      const auto& ids = full[p].ids;
      const auto stop = std::find(ids.begin(), ids.end(), request.stop[0]);
      const infer::TokenIds until(ids.begin(), stop == ids.end() ? stop : stop + 1);
      EXPECT_EQ(out[p].ids, until) << p;
      EXPECT_EQ(out[p].stopped, stop != ids.end()) << p;
    }
    EXPECT_TRUE(out[2].stopped);
  }
}

TEST(Inference, EvaluationEqualsTheTrainersBitForBit) {
  const models::Model model = models::make(config_json({}), "test");
  const RandomTokens tokens(400, 37);
  kernels::set_threads(1);
  infer::EvalReport expected;
  run_local(1, [&](World& world) {
    Variant v{.world = 1, .micro_batch = 2};
    train::Trainer trainer(world, options_of(model, v, 1));
    trainer.initialize();
    expected = trainer.evaluate(tokens, 13);
  });
  EXPECT_EQ(expected.tokens, 13 * 9);
  for (const Where& where : everywhere)
    run_local(
        where.world,
        [&](World& world) {
          auto options = options_of(model, where, plan::Purpose::evaluate);
          options.run.tokens = 9;
          infer::Inference inference(world, options);
          inference.initialize(5);
          for (int again = 0; again < 2; ++again) {
            const auto report = inference.evaluate(tokens, 13);
            EXPECT_EQ(report.loss, expected.loss) << where.str();
            EXPECT_EQ(report.token_accuracy, expected.token_accuracy) << where.str();
            EXPECT_EQ(report.tokens, expected.tokens) << where.str();
          }
        },
        where.copies);
}

TEST(Inference, MemoryIsPlannedAndHoldsParametersOnly) {
  const models::Model model = models::make(config_json({}), "test");
  const RandomTokens tokens(400, 37);
  const GenerateRequest request = five_prompts();
  kernels::set_threads(1);
  for (const Where& where : everywhere)
    for (const auto purpose : {plan::Purpose::evaluate, plan::Purpose::generate})
      run_local(
          where.world,
          [&](World& world) {
            auto options = options_of(model, where, purpose);
            if (purpose == plan::Purpose::generate) use(options, request);
            else options.run.tokens = 9;
            infer::Inference inference(world, options);
            inference.arena().fill_with_pattern();
            inference.initialize(5);
            if (purpose == plan::Purpose::generate) (void)inference.generate(request);
            else (void)inference.evaluate(tokens, 2 * where.world + 1);
            const auto& costs = inference.plan().costs;
            EXPECT_EQ(plan::compare_memory(inference.plan(), inference.measured_memory()), "") << where.str();
            EXPECT_EQ(costs.memory[static_cast<int>(Category::grads)], 0U);
            EXPECT_EQ(costs.memory[static_cast<int>(Category::optimizer)], 0U);
            std::int64_t padded = 0;
            for (int u = 0; u < inference.plan().layout.num_units(); ++u)
              padded += inference.plan().layout.padded_numel(u);
            const bool cut = inference.plan().layout.num_shards(0) > 1 &&
                             (!inference.plan().main().units.front().params_resident || !where.copies);
            std::size_t params = 0;
            for (const ArenaSlot& slot : inference.plan().slots)
              params += slot.category == Category::params ? slot.bytes : 0;
            EXPECT_EQ(params, static_cast<std::size_t>(4 * padded / (cut ? inference.plan().layout.num_shards(0) : 1)))
                << where.str();
            EXPECT_EQ(inference.arena().broken_canary(), "");
            for (const auto& slot : inference.plan().slots) {
              if (slot.category == Category::params || slot.category == Category::comm) continue;
              const std::size_t touched = inference.arena().touched(slot.name);
              EXPECT_LE(touched, slot.bytes) << slot.name;
              const std::size_t rows_here = world.rank() < 3 ? 1 : 0;  // ranks beyond the third have no prompt
              if (rows_here == 0 || purpose == plan::Purpose::generate) continue;
              EXPECT_GT(slot.id.use == SlotUse::workspace ? 2 * touched : touched + 64, slot.bytes)
                  << slot.name << " in " << where.str();
            }
          },
          where.copies);
}

TEST(Inference, ResidentParametersAreGatheredOnce) {
  const models::Model model = models::make(config_json({}), "test");
  const GenerateRequest request = five_prompts();
  for (const char* strategy : {"1", "3"})
    run_local(
        2,
        [&](World& world) {
          auto options = options_of(model, {.world = 2, .strategy = strategy, .copies = true}, plan::Purpose::generate);
          use(options, request);
          infer::Inference inference(world, options);
          inference.initialize(5);
          const auto& plan = inference.plan();
          const auto before = inference.traffic(Axis::shard);
          const auto report = inference.generate(request);
          const auto counted = inference.traffic(Axis::shard).within_node - before.within_node;
          EXPECT_EQ(counted, static_cast<std::uint64_t>(report.prefill.passes + report.decode.passes) *
                                 plan.costs.shard_axis.within_node);
          EXPECT_EQ(plan.load.list.size(), strategy[0] == '1' ? plan.units.size() : 0U);
          const auto gathers = std::count_if(plan.logits.list.begin(), plan.logits.list.end(),
                                             [](const auto& i) { return i.op == shard::Op::gather; });
          EXPECT_EQ(gathers > 0, strategy[0] == '3');
        },
        /*copies=*/true);
}

}  // namespace
}  // namespace tessera::test
