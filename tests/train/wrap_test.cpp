// SPDX-License-Identifier: Apache-2.0
// Units of several transformer blocks, or of the whole model. A gradient is summed element by element, over trees of
// ranks and micro-batches that do not depend on units; so every wrap policy gives the bits of one block a unit.

#include <gtest/gtest.h>

#include "models/lora.hpp"
#include "tests/train/golden.hpp"

namespace tessera::test {
namespace {

using Kind = shard::WrapPolicy::Kind;
constexpr shard::WrapPolicy three{.blocks_per_unit = 3}, whole{.kind = Kind::model};

std::vector<std::string> unit_names(const models::Model& model, const Variant& variant) {
  std::vector<std::string> names;
  for (const shard::UnitSpec& unit : plan::make_plan(options_of(model, variant, 1).run).units)
    names.push_back(unit.name);
  return names;
}

class Wrap : public ::testing::Test {
 protected:
  // Four blocks: one of three and a remainder. Blocks of 22 channels end in the first half of a block of the norm.
  models::Model model_ = models::make(config_json({.layers = 4, .hidden = 22, .heads = 2}), "test");
  RandomTokens tokens_{400, 37};

  Outcome outcome(const Variant& variant) const { return run({&model_, &tokens_, 3, "", true, {}}, variant); }
};

using Names = std::vector<std::string>;

TEST_F(Wrap, NamesOfUnits) {
  const auto names = [&](const shard::WrapPolicy& wrap) { return unit_names(model_, {.wrap = wrap}); };
  EXPECT_EQ(names({}), (Names{"embed", "h.0", "h.1", "h.2", "h.3", "head"}));
  EXPECT_EQ(names({.blocks_per_unit = 2}), (Names{"embed", "h.0-1", "h.2-3", "head"}));
  EXPECT_EQ(names(three), (Names{"embed", "h.0-2", "h.3", "head"}));
  EXPECT_EQ(names({.blocks_per_unit = 100}), (Names{"embed", "h.0-3", "head"}));
  EXPECT_EQ(names(whole), Names{"model"});
  std::int64_t block = 0;
  for (const int param : model_.modules[1]->params()) block += model_.params[static_cast<std::size_t>(param)].numel();
  const auto by_size = [&](std::int64_t least) { return names({.kind = Kind::size, .min_num_params = least}); };
  EXPECT_EQ(by_size(1), names({}));
  EXPECT_EQ(by_size(block), names({}));
  EXPECT_EQ(by_size(block + 1), names({.blocks_per_unit = 2}));
  EXPECT_EQ(by_size(3 * block), names(three));
}

TEST_F(Wrap, NamesOfExpertsAndFrozenUnits) {
  const models::Model experts = models::make(experts_config, "test");
  EXPECT_EQ(unit_names(experts, {.wrap = {.blocks_per_unit = 2}}),
            (Names{"embed", "layers.0-1", "layers.0-1.experts", "layers.2", "layers.2.experts", "head"}));
  EXPECT_EQ(unit_names(experts, {.experts = shard::ExpertUnits::block, .wrap = three}),
            (Names{"embed", "layers.0-2", "head"}));
  models::Model frozen = models::make(config_json({.layers = 4}), "test");
  freeze(frozen, [](const std::string& name) { return name.starts_with("h.0.") || name == "h.1.attn.c_attn.weight"; });
  EXPECT_EQ(unit_names(frozen, {.wrap = three}), (Names{"embed", "h.0-2.frozen", "h.0-2", "h.3", "head"}));
  EXPECT_EQ(unit_names(frozen, {.wrap = whole}), (Names{"model", "model.frozen"}));
  models::Model adapted = models::make(config_json({.layers = 4}), "test");
  models::add_lora(adapted, {.rank = 3});
  EXPECT_EQ(unit_names(adapted, {.wrap = three}), (Names{"embed", "h.0-2", "h.0-2.lora", "h.3", "h.3.lora", "head"}));
  EXPECT_EQ(unit_names(adapted, {.wrap = whole}), (Names{"model", "model.lora"}));
}

TEST_F(Wrap, GlobsNameTheUnitsThatThereAre) {
  const auto strategies = [](std::vector<shard::UnitStrategy> units) {
    return Variant{.world = 2, .unit_strategies = std::move(units), .wrap = three};
  };
  const plan::RunPlan plan = plan::make_plan(options_of(model_, strategies({{"h.*", "0"}, {"h.0-2", "3"}}), 1).run);
  EXPECT_EQ(plan.layout.num_shards(1), 2);
  EXPECT_EQ(plan.layout.num_shards(2), 1);
  try {
    (void)plan::make_plan(options_of(model_, strategies({{"h.1", "0"}}), 1).run);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(error.line().find("no unit of the model matches 'h.1'"), std::string::npos) << error.line();
    EXPECT_NE(error.line().find("embed, h.0-2, h.3, head"), std::string::npos) << error.line();
  }
}

TEST_F(Wrap, SameBitsAtEveryStageWorldAndReduction) {
  for (const int world : {1, 2, 3, 4})
    for (const auto reduce : {shard::Reduce::each, shard::Reduce::last}) {
      const Variant base{.world = world, .strategy = "0", .global_batch = 7, .reduce = reduce};
      const Outcome first = outcome(base);
      for (const char* stage : {"0", "1", "2", "3"}) {
        Variant v = base;
        v.strategy = stage;
        v.copies = stage[0] % 2 == 0 || world == 4;
        v.wrap = three;
        EXPECT_EQ(difference(first, outcome(v)), "") << v.str();
        v.copies = !v.copies;
        v.recompute = true;
        v.prefetch = world % 3;
        v.wrap = world == 2 || world == 4 ? whole : three;
        EXPECT_EQ(difference(first, outcome(v)), "") << v.str();
      }
    }
}

TEST_F(Wrap, SameBitsOnAMeshOfTwoAxes) {
  for (const bool copies : {false, true})
    for (const int num_micro : {1, 3}) {
      const Variant base{
          .world = 4, .strategy = "3", .global_batch = 4 * num_micro, .copies = copies, .ranks_per_node = 2};
      const Outcome first = outcome(base);
      for (const auto& units : {std::vector<shard::UnitStrategy>{},
                                {{"h.0-2", "NO_SHARD"}, {"head", "SHARD_GRAD_OP"}},
                                {{"embed", "0"}, {"h.3", "FULL_SHARD"}}}) {
        Variant v = base;
        v.strategy = "HYBRID_SHARD";
        v.unit_strategies = units;
        v.wrap = three;
        v.recompute = copies;
        v.prefetch = num_micro;
        EXPECT_EQ(difference(first, outcome(v)), "") << v.str();
      }
      Variant v = base;
      v.strategy = "HYBRID_SHARD";
      v.wrap = whole;
      EXPECT_EQ(difference(first, outcome(v)), "") << v.str();
    }
}

TEST_F(Wrap, SameBitsWhereReplicasAreReducedOnce) {
  for (const char* strategy : {"HYBRID_SHARD", "HYBRID_SHARD_ZERO2", "0"}) {
    Variant v{
        .world = 4, .strategy = strategy, .global_batch = 11, .reduce = shard::Reduce::shard_each, .ranks_per_node = 2};
    const Outcome first = outcome(v);
    for (const shard::WrapPolicy& wrap : {three, whole}) {
      v.wrap = wrap;
      v.copies = !v.copies;
      EXPECT_EQ(difference(first, outcome(v)), "") << v.str();
    }
  }
}

TEST_F(Wrap, SameBitsWithExpertsFrozenPartsAdaptersAnd16Bits) {
  const models::Model experts = models::make(experts_config, "test");
  const models::Model half = models::make(config_json({.layers = 4}), "test", DType::bf16);
  models::Model frozen = models::make(config_json({.layers = 4}), "test");
  freeze(frozen, [](const std::string& name) { return name.starts_with("h.0.") || name == "h.1.attn.c_attn.weight"; });
  models::Model adapted = models::make(config_json({.layers = 4}), "test");
  models::add_lora(adapted, {.rank = 3, .alpha = 6, .dropout = 0.3});
  for (const models::Model* model : std::initializer_list<const models::Model*>{&experts, &half, &frozen, &adapted}) {
    Variant v{.world = 3, .global_batch = 5, .micro_batch = 2, .copies = true};
    v.dtype = v.reduce_dtype = model->dtype;
    const auto of = [&] { return run({model, &tokens_, 3, "", true, {}}, v); };
    const Outcome first = of();
    for (const shard::WrapPolicy& wrap : {shard::WrapPolicy{.blocks_per_unit = 2}, three, whole})
      for (const auto placed : {shard::ExpertUnits::own, shard::ExpertUnits::block}) {
        if (placed == shard::ExpertUnits::block && model != &experts) continue;
        v.wrap = wrap;
        v.experts = placed;
        v.recompute = !v.recompute;
        EXPECT_EQ(difference(first, of()), "") << v.str() << model->family << wrap.blocks_per_unit;
      }
  }
}

TEST_F(Wrap, MemoryAndTrafficAsPlannedAndByFormula) {
  for (const char* strategy : {"2", "3"}) {
    const Variant v{.world = 3, .strategy = strategy, .global_batch = 6, .copies = true, .wrap = three};
    (void)run({&model_, &tokens_, 1, "", false,
               [&](train::Trainer& trainer) {
                 const plan::RunPlan& plan = trainer.plan();
                 EXPECT_EQ(plan::compare_memory(plan, trainer.measured_memory()), "");
                 std::uint64_t numel = 0;
                 for (int u = 0; u < plan.layout.num_units(); ++u)
                   numel += static_cast<std::uint64_t>(plan.layout.padded_numel(u));
                 // Two micro-batches: a gather of each of the four units, all of which stay in their slots until the
                 // update, and two reductions of each.
                 const TrafficCount sent = trainer.traffic(Axis::shard);
                 EXPECT_EQ(sent.collectives, 4u + 2 * 4 + 1);
                 EXPECT_EQ(sent.within_node,
                           (1 + 2) * 4 * numel / 3 * 2 + 2 * 8 * shard::ShardManager::num_norm_counters(4, 0));
                 EXPECT_EQ(sent.within_node, plan.costs.traffic[0].within_node);
               }},
              v);
  }
}

// Ten AdamW steps of PyTorch: three blocks and one.
TEST(GoldenWrap, TenStepsOfPyTorch) {
  const Golden golden = load_golden("text");
  for (const int world : {1, 2, 3, 4}) {
    std::vector<double> first;
    for (const char* stage : {"0", "1", "2", "3", "HYBRID_SHARD"}) {
      const bool hybrid = stage[0] == 'H';
      if (hybrid && world != 4) continue;
      Variant v = golden_stage(golden, world, stage);
      v.wrap = three;
      v.prefetch = world % 3;
      if (hybrid) v.group = 2;
      std::vector<double> curve;
      run_local(
          world,
          [&](World& ranks) {
            const GoldenRun run = run_golden(ranks, golden, v);
            for (const std::string& wrong : run.wrong) ADD_FAILURE() << wrong;
            if (ranks.rank() == 0) curve = run.curve;
          },
          v.copies);
      if (first.empty()) first = curve;
      EXPECT_EQ(curve.size(), 20u);
      EXPECT_EQ(curve, first) << v.str();
    }
  }
}

}  // namespace
}  // namespace tessera::test
