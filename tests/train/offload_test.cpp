// SPDX-License-Identifier: Apache-2.0
// States that are kept on the host: every strategy has the bits of the run without offload, and the memory that the
// plan says. Without a device, host memory stands for it.

#include <gtest/gtest.h>

#include "models/lora.hpp"
#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

using shard::StatePlacement;
using shard::Tier;

constexpr StatePlacement optimizer_offloaded{Tier::device, Tier::host, Tier::host},
    all_away{Tier::host, Tier::host, Tier::host};

Outcome outcome(const models::Model& model, const Variant& v) {
  static const RandomTokens tokens(400, 37);
  const auto memory_is_as_planned = [](train::Trainer& trainer) {
    EXPECT_EQ(plan::compare_memory(trainer.plan(), trainer.measured_memory()), "");
  };
  return run({&model, &tokens, 2, "", /*evaluate=*/true, memory_is_as_planned}, v);
}

void expect_same_bits(const models::Model& model, const Variant& resident) {
  const Outcome expected = outcome(model, resident);
  for (const StatePlacement& placement : {optimizer_offloaded, all_away}) {
    Variant v = resident;
    v.placement = placement;
    EXPECT_EQ(difference(outcome(model, v), expected), "") << v.str();
    v.streams = Stream::Mode::deferred;
    EXPECT_EQ(difference(outcome(model, v), expected), "") << v.str();
  }
}

class Offload : public ::testing::TestWithParam<const char*> {};

TEST_P(Offload, SameBitsAsResident) {
  const bool hybrid = GetParam()[0] == 'H';
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const models::Model model = models::make(config_json({}), "test", dtype);
    for (const int world : {1, 3, 4})
      for (const std::int64_t global_batch : {2 * world - 1, 3 * world}) {
        if (hybrid && world != 4) continue;
        expect_same_bits(model, {.world = world,
                                 .strategy = GetParam(),
                                 .group = hybrid ? 2 : 0,
                                 .global_batch = global_batch,
                                 .dtype = dtype});
      }
  }
}

TEST_P(Offload, SameBitsWithEveryReduction) {
  const models::Model model = models::make(config_json({}), "test", DType::bf16);
  const bool hybrid = GetParam()[0] == 'H';
  Variant v{.world = 4,
            .strategy = GetParam(),
            .group = hybrid ? 2 : 0,
            .global_batch = 12,
            .recompute = true,
            .dtype = DType::bf16,
            .reduce_dtype = DType::bf16};
  for (const shard::Reduce reduce : {shard::Reduce::last, shard::Reduce::shard_each}) {
    v.reduce = reduce;
    expect_same_bits(model, v);
  }
  v.reduce = shard::Reduce::each;
  v.reproducible = true;
  expect_same_bits(model, v);
}
INSTANTIATE_TEST_SUITE_P(Stages, Offload, ::testing::Values("0", "1", "2", "3", "HYBRID_SHARD"),
                         [](const auto& of) { return std::string(of.param); });

TEST(OffloadOf, AdaptersAndTheirFrozenBase) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    models::Model model = models::make(config_json({.layers = 3}), "test", dtype);
    models::add_lora(model, {.rank = 3, .alpha = 6, .dropout = 0.3});
    for (const char* strategy : {"2", "3"})
      expect_same_bits(model, {.world = 3, .strategy = strategy, .global_batch = 7, .dtype = dtype});
  }
}

TEST(OffloadOf, OtherOptimizersAndLossScaling) {
  const models::Model model = models::make(config_json({}), "test");
  for (const train::OptimizerOptions& optimizer :
       {train::OptimizerOptions{.kind = train::OptimizerKind::adamw_8bit},
        train::OptimizerOptions{.kind = train::OptimizerKind::sgd, .momentum = 0.9}})
    expect_same_bits(model, {.world = 2, .global_batch = 6, .optimizer = optimizer});
  const models::Model half = models::make(config_json({}), "test", DType::f16);
  expect_same_bits(half, {.world = 2, .dtype = DType::f16, .loss_scale = {.initial = 0x1p60}});  // overflows at first
}

TEST(OffloadOf, UpdatesBesideBackwardWithoutClipping) {
  const models::Model model = models::make(config_json({}), "test", DType::bf16);
  for (const char* strategy : {"1", "3"}) {
    Variant v{.world = 2, .strategy = strategy, .global_batch = 6, .dtype = DType::bf16, .max_grad_norm = 0};
    const Outcome expected = outcome(model, v);
    v.updates_before_norm = true;
    for (const StatePlacement& placement : {optimizer_offloaded, all_away}) {
      v.placement = placement;
      EXPECT_EQ(difference(outcome(model, v), expected), "") << v.str();
    }
  }
}

/// Every form of checkpointing, beside the run whose activations stay; and with states on the host too.
void expect_same_with_activations(const models::Model& model, const Variant& base) {
  const Outcome expected = outcome(model, base);
  for (const int form : {0, 1, 2, 3})
    for (const Stream::Mode streams : {Stream::Mode::threaded, Stream::Mode::deferred}) {
      Variant v = base;
      v.offload_activations = true;
      v.selective = form == 1;
      v.recompute = form == 2;
      v.keep_all = form == 3;
      v.streams = streams;
      if (form == 1 && streams == Stream::Mode::deferred) v.placement = optimizer_offloaded;
      EXPECT_EQ(difference(outcome(model, v), expected), "") << v.str();
    }
}

TEST_P(Offload, ActivationsHaveTheSameBits) {
  const bool hybrid = GetParam()[0] == 'H';
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const models::Model model = models::make(config_json({.layers = 5}), "test", dtype);
    const Variant v{.world = hybrid ? 4 : 2,
                    .strategy = GetParam(),
                    .group = hybrid ? 2 : 0,
                    .global_batch = dtype == DType::f32 ? 2 : 11,  // the last micro-batch is not full
                    .micro_batch = dtype == DType::f32 ? 1 : 2,
                    .dtype = dtype,
                    .loss_scale = {.initial = 0x1p60}};
    expect_same_with_activations(model, v);
  }
}

TEST(OffloadOf, ActivationsOfOtherModels) {
  for (const char* config : {qwen3_config, experts_config}) {
    const models::Model model = models::make(config, "test", DType::bf16);
    expect_same_with_activations(model, {.world = 2, .global_batch = 7, .micro_batch = 2, .dtype = DType::bf16});
  }
  models::Model adapted = models::make(config_json({.layers = 5}), "test", DType::bf16);
  models::add_lora(adapted, {.rank = 3, .alpha = 6, .dropout = 0.3});
  expect_same_with_activations(adapted, {.world = 2, .global_batch = 7, .dtype = DType::bf16});
  models::Model half = models::make(config_json({.layers = 6}), "test");
  freeze(half, [](const std::string& name) {
    return name.starts_with("wte") || name.starts_with("wpe") || name.starts_with("h.0") || name.starts_with("h.1");
  });
  expect_same_with_activations(half, {.world = 2, .global_batch = 7});
  models::Model single = models::make(config_json({.layers = 1}), "test");  // nothing leaves its slot
  expect_same_with_activations(single, {.world = 1, .global_batch = 2});
}

/// Of 8 blocks the inputs and the saved activations of all but those that stay are in host memory, and the slots in
/// which modules take turns are beside them.
TEST(OffloadOf, ActivationsAreWhereThePlanSays) {
  const models::Model model = models::make(config_json({.layers = 8}), "test");
  const auto plan_of = [&](bool offload, bool full) {
    return plan::make_plan(
        options_of(model, {.global_batch = 1, .recompute = full, .offload_activations = offload}, 1).run);
  };
  const auto bytes = [](const plan::RunPlan& plan, Memory memory) {
    std::size_t sum = 0;
    for (const ArenaSlot& slot : plan.slots)
      if (slot.category == Category::activations && slot.memory == memory) sum += slot.bytes;
    return sum;
  };
  const models::BatchShape shape{1, 9};
  const std::size_t input = 9 * 24 * sizeof(float), saved = model.modules[1]->saved_bytes(shape, DType::f32);
  for (const bool full : {false, true}) {
    const plan::RunPlan resident = plan_of(false, full), offloaded = plan_of(true, full);
    const std::size_t blocks_saved = full ? 0 : saved;
    // Resident: 9 inputs and 8 times what is saved. Offloaded: 3 and 2 slots; 6 inputs and 6 times what is saved leave.
    EXPECT_EQ(bytes(resident, Memory::host) - bytes(offloaded, Memory::host), (9 - 3) * input + (8 - 2) * blocks_saved);
    EXPECT_EQ(bytes(offloaded, Memory::pinned), 6 * input + 6 * blocks_saved);
    EXPECT_EQ(offloaded.costs.moved.fetched, 6 * input + 6 * blocks_saved);
    EXPECT_EQ(offloaded.costs.moved.stored, offloaded.costs.moved.fetched);
    EXPECT_LT(plan::memory_needed(offloaded), plan::memory_needed(resident));
    EXPECT_EQ(offloaded.costs.total - plan::memory_needed(offloaded),
              offloaded.costs.in[static_cast<int>(Memory::pinned)]);
  }
}

/// What must fit falls by what moves: per parameter of a shard 4 bytes of master weights and 8 of AdamW; of the
/// gradient accumulators all but two staging slots, and of the params, with ZeRO-3, all but two.
TEST(OffloadOf, WhatMustFitFallsAsPlanned) {
  const models::Model model = models::make(config_json({.layers = 8, .hidden = 96}), "test", DType::bf16);
  const auto plan_of = [&](const StatePlacement& placement) {
    plan::RunSpec spec = options_of(model, {.world = 2, .global_batch = 4, .dtype = DType::bf16}, 1).run;
    spec.strategy.policy.placement = placement;
    return plan::make_plan(spec);
  };
  const auto shard_numel = [](const plan::RunPlan& plan) {
    std::size_t numel = 0;
    for (int u = 0; u < plan.layout.num_units(); ++u) numel += static_cast<std::size_t>(plan.layout.shard_numel(u));
    return numel;
  };
  const auto slot = [](const plan::RunPlan& plan, const std::string& name) {
    for (const ArenaSlot& s : plan.slots)
      if (s.name == name) return s.bytes;
    return std::size_t{0};
  };
  const plan::RunPlan resident = plan_of({}), optimizer = plan_of(optimizer_offloaded), all = plan_of(all_away);
  const std::size_t numel = shard_numel(resident);
  const auto near = [](std::size_t a, std::size_t b) {  // pages
    return static_cast<double>(a) / static_cast<double>(b) < 1.02 &&
           static_cast<double>(b) / static_cast<double>(a) < 1.02;
  };
  const auto staged = [&](const plan::RunPlan& plan, const char* state) {
    return slot(plan, std::string("stage.") + state + ".0") + slot(plan, std::string("stage.") + state + ".1");
  };
  EXPECT_EQ(plan::memory_needed(resident), resident.costs.total);
  EXPECT_GT(staged(optimizer, "grads"), 0u);
  EXPECT_GT(staged(all, "params"), 0u);
  // Resident: 4 + 8 + 4 a parameter. Away: a bf16 shard for the gathers.
  EXPECT_TRUE(near(plan::memory_needed(resident) - 16 * numel + 2 * numel + staged(optimizer, "grads"),
                   plan::memory_needed(optimizer)));
  EXPECT_TRUE(near(plan::memory_needed(optimizer) - 2 * numel + staged(all, "params"), plan::memory_needed(all)));
  EXPECT_LT(plan::memory_needed(all), plan::memory_needed(resident) / 2);
}

}  // namespace
}  // namespace tessera::test
