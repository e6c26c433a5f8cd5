// SPDX-License-Identifier: Apache-2.0
// Strategies of single units: where the reduction trees are equal, a run that mixes strategies gives the bits of one
// that does not. What it sends and holds is what the plan says.

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "tests/train/run.hpp"

namespace tessera::test::mixed {
namespace {

class MixedStrategies : public ::testing::Test {
 protected:
  models::Model model_ = models::make(config_json({.layers = 3}), "test");
  RandomTokens tokens_{400, 37};

  Outcome outcome(const Variant& variant) const { return run({&model_, &tokens_, 3, "", true, {}}, variant); }
};

/// All strategies in one model; those of HYBRID need a mesh of two axes.
const std::vector<std::vector<shard::UnitStrategy>> flat{
    {{"embed", "NO_SHARD"}, {"h.*", "FULL_SHARD"}, {"head", "SHARD_GRAD_OP"}},
    {{"*", "1"}, {"h.1", "0"}, {"h.2", "3"}},
    {{"h.0", "NO_SHARD"}}};
const std::vector<std::vector<shard::UnitStrategy>> hybrid{
    {{"embed", "NO_SHARD"}, {"h.0", "HYBRID_SHARD"}, {"h.1", "FULL_SHARD"}, {"head", "HYBRID_SHARD_ZERO2"}},
    {{"*", "HYBRID_SHARD"}, {"embed", "2"}, {"h.2", "0"}}};

TEST_F(MixedStrategies, SameBitsAsOneStrategyOnAnyWorld) {
  for (const int world : {1, 2, 3, 4})
    for (const auto reduce : {shard::Reduce::each, shard::Reduce::last}) {
      Variant base{.world = world, .strategy = "0", .global_batch = 11, .reduce = reduce};
      const Outcome first = outcome(base);
      for (const auto& units : flat)
        for (const char* strategy : {"0", "2", "3"})
          for (const bool copies : {false, true}) {
            Variant v = base;
            v.strategy = strategy;
            v.unit_strategies = units;
            v.copies = copies;
            EXPECT_EQ(difference(first, outcome(v)), "") << v.str() << units.front().units;
          }
    }
}

TEST_F(MixedStrategies, SameBitsOnAMeshOfTwoAxes) {
  for (const bool copies : {false, true})
    for (const int num_micro : {1, 3}) {
      Variant base{.world = 4, .strategy = "3", .global_batch = 4 * num_micro, .copies = copies, .ranks_per_node = 2};
      const Outcome first = outcome(base);
      for (const auto& units : hybrid)
        for (const char* strategy : {"0", "3", "HYBRID_SHARD"}) {
          Variant v = base;
          v.strategy = strategy;
          v.unit_strategies = units;
          for (const bool recompute : {false, true}) {
            v.recompute = recompute;
            v.prefetch = recompute ? 2 : 1;
            EXPECT_EQ(difference(first, outcome(v)), "") << v.str() << units.front().units;
          }
        }
    }
}

// shard_each is an order of sums of its own. Strategies of one mesh share it, whatever else differs; a NO_SHARD unit
// adds its gradients on each rank, so it is not among them.
TEST_F(MixedStrategies, ShardEachIsOneOrderOfSums) {
  Variant base{.world = 4,
               .strategy = "HYBRID_SHARD",
               .group = 2,
               .global_batch = 12,
               .reduce = shard::Reduce::shard_each,
               .copies = true};
  const Outcome first = outcome(base);
  for (const auto reduce : {shard::Reduce::each, shard::Reduce::last}) {
    Variant other = base;
    other.reduce = reduce;
    EXPECT_NE(difference(first, outcome(other)), "");
  }
  for (const char* strategy : {"1", "2", "3"})
    for (const bool copies : {false, true})
      for (const auto streams : {Stream::Mode::threaded, Stream::Mode::deferred}) {
        Variant v = base;
        v.strategy = strategy;
        v.copies = copies;
        v.streams = streams;
        v.recompute = copies;
        EXPECT_EQ(difference(first, outcome(v)), "") << v.str();
      }
  Variant units = base;
  units.unit_strategies = {{"h.1", "HYBRID_SHARD_ZERO2"}};
  EXPECT_EQ(difference(first, outcome(units)), "");
  // Of one micro-batch, and of units without replicas, the sums are those of `each`.
  for (const auto& [strategy, group, batch] : {std::tuple{"HYBRID_SHARD", 2, 4}, {"3", 0, 12}, {"2", 0, 11}}) {
    Variant each{.world = 4, .strategy = strategy, .group = group, .global_batch = batch};
    Variant shard_each = each;
    shard_each.reduce = shard::Reduce::shard_each;
    EXPECT_EQ(difference(outcome(each), outcome(shard_each)), "") << strategy;
  }
}

// The gradient of every element is within rounding of that of `each`.
TEST_F(MixedStrategies, ShardEachSumsTheSameGradients) {
  Variant v{.world = 4, .strategy = "HYBRID_SHARD", .group = 2, .global_batch = 12};
  v.unit_strategies = {{"embed", "NO_SHARD"}};
  const RunInput one_step{&model_, &tokens_, 1, "", false, {}};
  const Outcome each = run(one_step, v);
  v.reduce = shard::Reduce::shard_each;
  const Outcome shard_each = run(one_step, v);
  ASSERT_EQ(each.grads.size(), shard_each.grads.size());
  for (std::size_t i = 0; i < each.grads.size(); ++i)
    ASSERT_NEAR(each.grads[i], shard_each.grads[i], 1e-6 + 1e-5 * std::abs(each.grads[i])) << i;
}

TEST_F(MixedStrategies, SixteenBitParameters) {
  Variant base{.world = 4,
               .strategy = "3",
               .global_batch = 8,
               .ranks_per_node = 2,
               .dtype = DType::bf16,
               .reduce_dtype = DType::bf16};
  const models::Model model = models::make(config_json({.layers = 3}), "test", DType::bf16);
  const auto of = [&](const Variant& v) { return run({&model, &tokens_, 3, "", true, {}}, v); };
  const Outcome first = of(base);
  for (const auto& units : flat) {
    Variant v = base;
    v.unit_strategies = units;
    EXPECT_EQ(difference(first, of(v)), "") << units.front().units;
  }
}

TEST_F(MixedStrategies, MemoryAndTrafficAsPlanned) {
  for (const bool copies : {false, true})
    for (const auto& units : {flat[0], flat[1], hybrid[0], hybrid[1]}) {
      Variant v{.world = 4,
                .strategy = "3",
                .unit_strategies = units,
                .global_batch = 8,
                .copies = copies,
                .ranks_per_node = 2};
      (void)run({&model_, &tokens_, 1, "", false,
                 [&](train::Trainer& trainer) {
                   const plan::RunPlan& plan = trainer.plan();
                   EXPECT_EQ(plan::compare_memory(plan, trainer.measured_memory()), "") << units.front().units;
                   for (std::size_t g = 0; g < plan.groups.all.size(); ++g) {
                     const TrafficCount sent = trainer.traffic(plan.groups.all[g]), planned = plan.costs.traffic[g];
                     EXPECT_EQ(sent.within_node, planned.within_node) << units.front().units;
                     EXPECT_EQ(sent.across_nodes, planned.across_nodes) << units.front().units;
                   }
                 }},
                v);
    }
}

/// What a rank sends for each unit, by formula: with S members, a gather and a reduce-scatter send (S-1)/S of the unit,
/// an all-reduce twice that.
TEST_F(MixedStrategies, BytesByFormula) {
  plan::RunSpec spec =
      options_of(model_,
                 {.world = 4,
                  .strategy = "HYBRID_SHARD",
                  .unit_strategies = {{"embed", "NO_SHARD"}, {"h.0", "FULL_SHARD"}, {"head", "SHARD_GRAD_OP"}},
                  .global_batch = 4,
                  .copies = true,
                  .ranks_per_node = 2},
                 1)
          .run;
  spec.topology = {.transport = Transport::mpi, .ranks_per_node = 2};
  const plan::RunPlan plan = plan::make_plan(spec);
  EXPECT_EQ(plan.spec.strategy.mesh, Mesh(2, 2));
  const AxisSet world = Axis::replicate | Axis::shard;
  ASSERT_EQ(plan.groups.all, (std::vector<AxisSet>{world, Axis::shard, Axis::replicate}));
  EXPECT_EQ(plan.groups.norm, std::vector<AxisSet>{world});
  const auto bytes = [&](const char* unit) {
    for (int u = 0; u < plan.layout.num_units(); ++u)
      if (plan.layout.unit_name(u) == unit) return 4 * static_cast<std::uint64_t>(plan.layout.padded_numel(u));
    return std::uint64_t{0};
  };
  const std::uint64_t counters =
      8 * shard::ShardManager::num_norm_counters(plan.layout.num_units(), model_.router.num_losses());
  std::uint64_t gathers_of_h0 = 0;  // forward, and backward unless the slot still holds it
  for (const auto& instruction : plan.train.list)
    if (instruction.op == shard::Op::gather &&
        plan.train.units[static_cast<std::size_t>(instruction.unit)].name == "h.0")
      ++gathers_of_h0;
  const auto sent = [&](AxisSet axes) {
    const TrafficCount& t = plan.costs.traffic[static_cast<std::size_t>(plan.groups.index_of(axes))];
    return t.within_node + t.across_nodes;
  };
  EXPECT_EQ(sent(world), 2 * bytes("embed") / 4 * 3                        // NO_SHARD: all-reduce
                             + (gathers_of_h0 + 1) * bytes("h.0") / 4 * 3  // FULL_SHARD: gathers, reduce-scatter
                             + 2 * bytes("head") / 4 * 3                   // SHARD_GRAD_OP: one gather, reduce-scatter
                             + 3 * counters);
  EXPECT_EQ(sent(Axis::replicate), 2 * (bytes("h.1") + bytes("h.2")) / 2 / 2);  // all-reduce of a shard
}

TEST_F(MixedStrategies, FrozenUnits) {
  models::Model model = models::make(config_json({.layers = 3}), "test");
  for (ParamSpec& param : model.params)  // all of h.0, and a part of h.1
    if (param.name.starts_with("h.0.") || param.name == "h.1.attn.c_attn.weight") param.trainable = false;
  const auto of = [&](const Variant& v) { return run({&model, &tokens_, 3, "", true, {}}, v); };
  for (const bool copies : {false, true}) {
    Variant base{.world = 4, .strategy = "3", .global_batch = 8, .copies = copies, .ranks_per_node = 2};
    const Outcome first = of(base);
    for (const auto& units : {flat[0], hybrid[0]}) {
      Variant v = base;
      v.unit_strategies = units;
      EXPECT_EQ(difference(first, of(v)), "") << units.front().units;
    }
  }
  const shard::Strategy strategy = shard::make_strategy("3", 4, 0, 2, {{"h.1", "0"}});
  EXPECT_TRUE(strategy.unit_policy("h.1.frozen").shard_axes.empty());
  EXPECT_FALSE(strategy.unit_policy("h.10").shard_axes.empty());
}

TEST_F(MixedStrategies, AGlobWithoutUnitsIsRefusedWithTheList) {
  const auto options = options_of(model_, {.world = 2, .unit_strategies = {{"layers.*", "0"}}, .global_batch = 4}, 1);
  try {
    (void)plan::make_plan(options.run);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(error.line().find("no unit of the model matches 'layers.*'"), std::string::npos) << error.line();
    EXPECT_NE(error.line().find("embed, h.0, h.1, h.2, head"), std::string::npos) << error.line();
  }
}

}  // namespace
}  // namespace tessera::test::mixed
