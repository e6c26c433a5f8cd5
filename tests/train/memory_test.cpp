// SPDX-License-Identifier: Apache-2.0
// Memory: measured equals planned, for every strategy, and a slot of another size than planned is noticed.

#include <gtest/gtest.h>

#include "kernels/threads.hpp"
#include "runtime/plan/activations.hpp"
#include "tests/train/run.hpp"

namespace tessera::test::memory {
namespace {

const char* const strategies[] = {"0", "1", "2", "3", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"};

void expect_measured_is_planned(const models::Model& model, const Variant& v) {
  const RandomTokens tokens(400, 37);
  const io::Sampler sampler(40, true, 1);
  kernels::set_threads(1);  // workspaces are per thread
  run_local(
      v.world,
      [&](World& world) {
        train::Trainer trainer(world, options_of(model, v, 3));
        trainer.arena().fill_with_pattern();
        trainer.initialize();
        for (int s = 0; s < 2; ++s) (void)trainer.step(tokens, sampler, s * v.global_batch, v.global_batch);
        (void)trainer.evaluate(tokens, 9);
        (void)trainer.generate(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}, 1, 0, 0);
        EXPECT_EQ(plan::compare_memory(trainer.plan(), trainer.measured_memory()), "") << v.str();
        EXPECT_EQ(trainer.measured_memory().total(), trainer.plan().costs.total);
        EXPECT_EQ(trainer.arena().broken_canary(), "");
        for (const auto& slot : trainer.plan().slots) {
          if (slot.category == Category::params || slot.category == Category::optimizer ||
              slot.category == Category::comm)
            continue;
          const std::size_t touched = trainer.arena().touched(slot.name);
          EXPECT_LE(touched, slot.bytes) << slot.name;
          // A slot that is not used to its end is planned too large. Workspaces are sized for the widest instruction
          // set.
          EXPECT_GT(slot.id.use == SlotUse::workspace ? 2 * touched : touched + 64, slot.bytes)
              << slot.name << " in " << v.str();
        }
      },
      v.copies);
}

TEST(Memory, MeasuredEqualsPlannedAndEverySlotIsUsedToItsEnd) {
  const models::Model model = models::make(config_json({}), "test");
  for (const char* strategy : strategies)
    for (const bool copies : {false, true})
      for (const bool recompute : {false, true})
        for (const std::int64_t accumulation : {1, 3})
          expect_measured_is_planned(model, {.world = 4,
                                             .strategy = strategy,
                                             .group = strategy[0] == 'H' ? 2 : 0,
                                             .global_batch = 8 * accumulation,
                                             .micro_batch = 2,
                                             .recompute = recompute,
                                             .selective = recompute && accumulation > 1,
                                             .keep_all = accumulation > 1,
                                             .copies = copies});
}

TEST(Memory, MeasuredEqualsPlannedForTheOtherFamilies) {
  for (const char* text : {qwen3_config, experts_config}) {
    const models::Model model = models::make(text, "test");
    for (const char* strategy : {"0", "3"})
      for (const bool recompute : {false, true})
        for (const auto experts : {shard::ExpertUnits::own, shard::ExpertUnits::block})
          expect_measured_is_planned(model, {.world = 3,
                                             .strategy = strategy,
                                             .global_batch = 6,
                                             .micro_batch = 2,
                                             .recompute = recompute,
                                             .selective = recompute && strategy[0] == '0',
                                             .keep_all = experts == shard::ExpertUnits::own,
                                             .copies = recompute,
                                             .experts = experts});
  }
}

TEST(Memory, MeasuredEqualsPlannedWithAdapters) {
  for (const char* text : {qwen3_config, experts_config})
    for (const double dropout : {0.0, 0.1})
      for (const DType dtype : {DType::f32, DType::bf16}) {
        models::Model model = models::make(text, "test", dtype);
        models::add_lora(model, {.rank = 4, .dropout = dropout});
        for (const char* strategy : {"0", "3"})
          expect_measured_is_planned(model, {.world = 2,
                                             .strategy = strategy,
                                             .micro_batch = 2,
                                             .selective = dtype == DType::bf16,
                                             .keep_all = dropout > 0,
                                             .copies = dropout > 0,
                                             .dtype = dtype});
      }
}

TEST(Memory, MeasuredEqualsPlannedWithFrozenParameters) {
  for (const std::string& text : {config_json({.layers = 3}), std::string(qwen3_config), std::string(experts_config)})
    for (const FrozenSet& set : frozen_sets)
      for (const DType dtype : {DType::f32, DType::bf16}) {
        SCOPED_TRACE(set.name);
        models::Model model = models::make(text, "test", dtype);
        freeze(model, set.frozen);
        for (const char* strategy : strategies)
          for (const bool recompute : {false, true})
            expect_measured_is_planned(model, {.world = 4,
                                               .strategy = strategy,
                                               .group = strategy[0] == 'H' ? 2 : 0,
                                               .global_batch = 16,
                                               .micro_batch = 2,
                                               .recompute = recompute,
                                               .keep_all = dtype == DType::bf16,
                                               .copies = recompute,
                                               .dtype = dtype});
      }
}

TEST(Memory, MeasuredEqualsPlannedInBf16) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const models::Model model = models::make(config_json({}), "test", dtype);
    for (const char* strategy : strategies)
      for (const bool copies : {false, true})
        for (const DType reduce_dtype : {DType::f32, dtype})
          for (const auto& [accumulation, reduce] :
               {std::pair{1, shard::Reduce::each}, {3, shard::Reduce::each}, {3, shard::Reduce::last}})
            expect_measured_is_planned(model, {.world = 4,
                                               .strategy = strategy,
                                               .group = strategy[0] == 'H' ? 2 : 0,
                                               .global_batch = 8 * accumulation,
                                               .micro_batch = 2,
                                               .reduce = reduce,
                                               .copies = copies,
                                               .dtype = dtype,
                                               .reduce_dtype = reduce_dtype});
  }
}

TEST(Memory, AShortenedSlotBreaksItsCanary) {
  models::Model model = models::make(config_json({}), "test");
  RandomTokens tokens(400, 37);
  const io::Sampler sampler(40, true, 1);
  kernels::set_threads(1);  // workspaces are per thread
  for (const char* strategy : {"0", "2", "3"})
    for (const bool copies : {false, true}) {
      const Variant v{.world = 2, .strategy = strategy, .global_batch = 8, .micro_batch = 2, .copies = copies};
      std::vector<ArenaSlot> slots;
      run_local(
          2,
          [&](World& world) {
            train::Trainer trainer(world, options_of(model, v, 1));
            if (world.rank() == 0) slots = trainer.plan().slots;
          },
          copies);
      int cut = 0;
      for (const auto& slot : slots) {
        if (slot.placement == Placement::node || slot.category == Category::comm || slot.id.use == SlotUse::logits ||
            slot.id.use == SlotUse::workspace)
          continue;
        // The end of a unit is padding, which is only cleared; state is tested by its last elements.
        if (slot.category == Category::params || slot.category == Category::optimizer) continue;
        ++cut;
        run_local(
            2,
            [&](World& world) {
              auto options = options_of(model, v, 1);
              options.test_hooks.resized_slot = slot.name;
              options.test_hooks.resize = -64;
              train::Trainer trainer(world, options);
              trainer.initialize();
              EXPECT_EQ(trainer.arena().broken_canary(), "");
              (void)trainer.step(tokens, sampler, 0, v.global_batch);
              EXPECT_EQ(trainer.arena().broken_canary(), slot.name)
                  << slot.name << " " << slot.bytes << " in " << v.str();
            },
            copies);
      }
      EXPECT_GE(cut, 8);
    }
}

TEST(Memory, ASlotLargerThanPlannedIsMeasured) {
  const models::Model model = models::make(config_json({}), "test");
  for (const char* strategy : {"0", "2", "3"})
    for (const bool copies : {false, true}) {
      const Variant v{.world = 2, .strategy = strategy, .global_batch = 8, .micro_batch = 2, .copies = copies};
      std::vector<ArenaSlot> slots;
      run_local(
          2,
          [&](World& world) {
            const train::Trainer trainer(world, options_of(model, v, 1));
            if (world.rank() == 0) slots = trainer.plan().slots;
          },
          copies);
      for (const ArenaSlot& slot : slots) {
        if (slot.placement == Placement::transport) continue;
        run_local(
            2,
            [&](World& world) {
              auto options = options_of(model, v, 1);
              options.test_hooks = {.resized_slot = slot.name, .resize = page_bytes};
              const train::Trainer trainer(world, options);
              const plan::Costs& costs = trainer.plan().costs;
              const auto c = static_cast<std::size_t>(slot.category);
              EXPECT_EQ(trainer.measured_memory().by_category[c], costs.memory[c] + page_bytes)
                  << slot.name << " in " << v.str();
              EXPECT_EQ(plan::compare_memory(trainer.plan(), trainer.measured_memory()),
                        strfmt("%s %zu bytes planned, %zu measured", name_of(slot.category), costs.memory[c],
                               costs.memory[c] + page_bytes));
            },
            copies);
      }
    }
}

TEST(Memory, FormulasOfZero) {
  // Bytes per rank on four ranks without shared memory, A = 1: params, grads and optimizer, in padded elements.
  models::Model model = models::make(config_json({.layers = 8}), "test");
  const auto memory = [&](const char* strategy) {
    auto options = options_of(model, {.world = 4, .strategy = strategy, .global_batch = 4}, 1);
    options.run.topology = {Transport::mpi, 1};
    return plan::make_plan(options.run);
  };
  const auto elements = [&](const plan::RunPlan& plan) {
    std::int64_t padded = 0;
    for (int u = 0; u < plan.layout.num_units(); ++u) padded += plan.layout.padded_numel(u);
    return static_cast<std::size_t>(padded);
  };
  const auto bytes = [](const plan::RunPlan& plan, Category c) {
    std::size_t sum = 0;
    for (const ArenaSlot& slot : plan.slots) sum += slot.category == c ? slot.bytes : 0;
    return sum;
  };
  for (const char* strategy : {"0", "1", "2", "3"}) {
    const auto plan = memory(strategy);
    const std::size_t p = elements(plan);
    const bool z0 = strategy[0] == '0', z3 = strategy[0] == '3', full_grads = strategy[0] < '2';
    EXPECT_EQ(bytes(plan, Category::optimizer), z0 ? 8 * p : 2 * p) << strategy;
    EXPECT_EQ(bytes(plan, Category::params), z3 ? p : 4 * p) << strategy;
    EXPECT_EQ(bytes(plan, Category::grads) < 4 * p, !full_grads) << strategy;
    EXPECT_LE(bytes(plan, Category::grads), 4 * p) << strategy;
  }
}

}  // namespace
}  // namespace tessera::test::memory
