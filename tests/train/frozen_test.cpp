// SPDX-License-Identifier: Apache-2.0
// Frozen parameters: strategies and scheduling options agree bit for bit, as without; frozen weights keep their bits;
// trainable gradients have the bits of the fully trainable run; memory and traffic are what the formulas say.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "runtime/shard/manager.hpp"
#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

using shard::Op;

struct Family {
  const char* name;
  std::string config;
};
const Family families[] = {{"gpt2", config_json({.layers = 3})}, {"qwen3", qwen3_config}, {"experts", experts_config}};

models::Model frozen_model(const Family& family, const FrozenSet& set, DType dtype = DType::f32,
                           DType storage_dtype = DType::f32) {
  models::Model model = models::make(family.config, "test", dtype);
  freeze(model, set.frozen);
  for (ParamSpec& param : model.params)
    if (!param.trainable) param.storage_dtype = storage_dtype;
  return model;
}

Outcome outcome(const models::Model& model, const Variant& v, int steps = 2) {
  static const RandomTokens tokens(400, 37);
  return run({&model, &tokens, steps, "", /*evaluate=*/steps > 1, {}}, v);
}

/// Calls `check` with the elements of each parameter: the parameter, the first, and the number of them.
template <class Check>
void for_each_param(const models::Model& model, const Outcome& o, Check&& check) {
  for (std::size_t i = 0; i < model.params.size(); ++i)
    check(model.params[i], static_cast<std::size_t>(o.param_offsets[i]),
          static_cast<std::size_t>(model.params[i].numel()));
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b, std::size_t first, std::size_t count) {
  return std::memcmp(a.data() + first, b.data() + first, count * sizeof(float)) == 0;
}

void expect_only_trainable_weights_move(const models::Model& model, const Variant& v, const Outcome& after) {
  const Outcome before = outcome(model, v, 0);
  for_each_param(model, after, [&](const ParamSpec& param, std::size_t first, std::size_t count) {
    EXPECT_EQ(same_bits(before.params, after.params, first, count), !param.trainable) << param.name << ", " << v.str();
  });
}

/// Family and frozen set.
class Frozen : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  const Family& family_ = families[std::get<0>(GetParam())];
  const FrozenSet& set_ = frozen_sets[std::get<1>(GetParam())];
};

TEST_P(Frozen, SameBitsAtEveryStage) {
  const models::Model model = frozen_model(family_, set_);
  for (const int world : {1, 2, 3, 4})
    for (const auto reduce : {shard::Reduce::each, shard::Reduce::last}) {
      const Variant base{.world = world, .strategy = "0", .global_batch = 7, .micro_batch = 2, .reduce = reduce};
      const Outcome first = outcome(model, base);
      for (const double loss : first.losses) EXPECT_GT(loss, 1.0);
      expect_only_trainable_weights_move(model, base, first);
      for (const char* stage : {"1", "2", "3"})
        for (const bool copies : {false, true}) {
          Variant v = base;
          v.strategy = stage;
          v.copies = copies;
          EXPECT_EQ(difference(first, outcome(model, v)), "") << v.str();
        }
    }
}

TEST_P(Frozen, SchedulingOptionsChangeNoBit) {
  const models::Model model = frozen_model(family_, set_);
  for (const char* strategy : {"0", "1", "2", "3", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"}) {
    const bool hybrid = strategy[0] == 'H';
    const Variant base{.world = hybrid ? 4 : 3,
                       .strategy = strategy,
                       .group = hybrid ? 2 : 0,
                       .global_batch = 10,
                       .micro_batch = 1,
                       .copies = true};
    const Outcome first = outcome(model, base);
    const auto same = [&](const Variant& v) { EXPECT_EQ(difference(first, outcome(model, v)), "") << v.str(); };
    for (const int prefetch : {0, 2}) {
      Variant v = base;
      v.prefetch = prefetch;
      same(v);
    }
    Variant v = base;
    v.recompute = true;
    same(v);
    v.experts = shard::ExpertUnits::block;
    same(v);
    v.reshard = false;
    same(v);
    v.streams = Stream::Mode::deferred;  // a missing wait would show
    same(v);
    v.copies = false;
    same(v);
    expect_only_trainable_weights_move(model, v, first);
  }
}

TEST_P(Frozen, ReproducibleOnAnyMesh) {
  const models::Model model = frozen_model(family_, set_);
  const Variant base{.world = 1, .global_batch = 8, .reproducible = true};
  const Outcome first = outcome(model, base);
  for (const auto& [world, strategy] :
       {std::pair{2, "3"}, {4, "0"}, {4, "2"}, {4, "HYBRID_SHARD"}, {4, "HYBRID_SHARD_ZERO2"}}) {
    Variant v = base;
    v.world = world;
    v.strategy = strategy;
    v.group = strategy[0] == 'H' ? 2 : 0;
    v.copies = world == 2;
    EXPECT_EQ(difference(first, outcome(model, v)), "") << v.str();
  }
}

TEST_P(Frozen, Bf16SameBitsAtEveryStage) {
  const models::Model model = frozen_model(family_, set_, DType::bf16, DType::bf16),
                      wide = frozen_model(family_, set_, DType::bf16);
  for (const int world : {1, 3})
    for (const DType reduce_dtype : {DType::f32, DType::bf16}) {
      const Variant base{
          .world = world, .strategy = "0", .global_batch = 7, .dtype = DType::bf16, .reduce_dtype = reduce_dtype};
      const Outcome first = outcome(model, base);
      expect_only_trainable_weights_move(model, base, first);
      for (const char* stage : {"1", "2", "3"})
        for (const bool copies : {false, true}) {
          Variant v = base;
          v.strategy = stage;
          v.copies = copies;
          v.recompute = !copies;
          EXPECT_EQ(difference(first, outcome(model, v)), "") << v.str();
          // Frozen weights in fp32 are rounded to the same when they are gathered.
          Outcome of_wide = outcome(wide, v);
          expect_only_trainable_weights_move(wide, v, of_wide);
          for_each_param(wide, of_wide, [&](const ParamSpec& param, std::size_t from, std::size_t count) {
            for (std::size_t i = from; !param.trainable && i < from + count; ++i)
              of_wide.params[i] = static_cast<float>(bf16(of_wide.params[i]));
          });
          EXPECT_EQ(difference(first, of_wide), "") << v.str();
        }
    }
}

/// The first step, with no clipping.
TEST_P(Frozen, GradientsAreThoseOfTheTrainableRun) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const models::Model frozen = frozen_model(family_, set_, dtype, dtype),
                        trainable = models::make(family_.config, "test", dtype);
    for (const int world : {1, 3, 4})
      for (const char* strategy : {"0", "2", "3", "HYBRID_SHARD"}) {
        if (strategy[0] == 'H' && world != 4) continue;
        for (const bool recompute : {false, true}) {
          const Variant v{.world = world,
                          .strategy = strategy,
                          .group = strategy[0] == 'H' ? 2 : 0,
                          .global_batch = 7,
                          .micro_batch = 2,
                          .recompute = recompute,
                          .copies = recompute,
                          .dtype = dtype,
                          .max_grad_norm = 0};
          const Outcome a = outcome(frozen, v, 1), b = outcome(trainable, v, 1);
          EXPECT_EQ(a.losses, b.losses) << v.str();
          EXPECT_LT(a.norms.front(), b.norms.front()) << v.str();
          for_each_param(frozen, a, [&](const ParamSpec& param, std::size_t first, std::size_t count) {
            EXPECT_TRUE(!param.trainable || same_bits(a.grads, b.grads, first, count)) << param.name << ", " << v.str();
          });
        }
      }
  }
}

// Frozen parameters of a module that are stored in several types are several units.
TEST_P(Frozen, StorageTypesMix) {
  models::Model model = frozen_model(family_, set_, DType::bf16);
  for (std::size_t i = 0; i < model.params.size(); i += 2)
    if (!model.params[i].trainable) model.params[i].storage_dtype = DType::bf16;
  const Variant base{.world = 2, .strategy = "0", .global_batch = 4, .dtype = DType::bf16};
  const Outcome first = outcome(model, base);
  expect_only_trainable_weights_move(model, base, first);
  Variant v = base;
  for (const char* stage : {"1", "2", "3"}) {
    v.strategy = stage;
    EXPECT_EQ(difference(first, outcome(model, v)), "") << v.str();
  }
}

std::string name_of_case(const ::testing::TestParamInfo<std::tuple<int, int>>& info) {
  std::string name = strfmt("%s_%s", families[std::get<0>(info.param)].name, frozen_sets[std::get<1>(info.param)].name);
  std::ranges::replace(name, ' ', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Runs, Frozen, ::testing::Combine(::testing::Range(0, 3), ::testing::Range(0, 5)),
                         name_of_case);

/// How often each unit has an instruction of the kind.
std::map<std::string, int> by_unit(const shard::Schedule& schedule, Op op) {
  std::map<std::string, int> count;
  for (const auto& instruction : schedule.list)
    if (instruction.op == op) ++count[schedule.units[static_cast<std::size_t>(instruction.unit)].name];
  return count;
}
int count_of(const shard::Schedule& schedule, Op op) {
  return static_cast<int>(std::ranges::count(schedule.list, op, &shard::Instruction::op));
}

plan::RunPlan plan_of(const models::Model& model, const Variant& v) {
  plan::RunPlan plan;
  run_local(
      v.world,
      [&](World& world) {
        const train::Trainer trainer(world, options_of(model, v, 1));
        if (world.rank() == 0) plan = trainer.plan();
      },
      v.copies);
  return plan;
}

// Three layers of gpt2, all but layer 1 frozen.
TEST(FrozenSchedule, ResidentUnitsAreGatheredOnceAndNothingBelowHasABackward) {
  const models::Model model = frozen_model(families[0], frozen_sets[1]);
  const int modules = static_cast<int>(model.modules.size()), num_micro = 3;
  for (const char* strategy : {"1", "2", "3"})
    for (const bool copies : {false, true}) {
      const Variant v{.world = 4, .strategy = strategy, .global_batch = 12, .recompute = true, .copies = copies};
      const plan::RunPlan plan = plan_of(model, v);
      std::map<std::string, int> resident;
      for (const auto& unit : plan.train.units) {
        EXPECT_EQ(unit.trainable, unit.name == "h.1");
        if (unit.params_resident && !unit.trainable) resident[unit.name] = 1;
      }
      EXPECT_EQ(resident.empty(), strategy[0] == '3' && copies);
      EXPECT_EQ(by_unit(plan.load, Op::gather), resident);
      for (const shard::Schedule* schedule : {&plan.train, &plan.eval, &plan.logits})
        for (const auto& [unit, count] : by_unit(*schedule, Op::gather)) EXPECT_FALSE(resident.contains(unit)) << unit;
      EXPECT_EQ(by_unit(plan.train, Op::reduce_scatter), (std::map<std::string, int>{{"h.1", num_micro}}));
      EXPECT_EQ(by_unit(plan.train, Op::update), (std::map<std::string, int>{{"h.1", 1}}));
      EXPECT_EQ(count_of(plan.train, Op::forward), num_micro * modules);
      EXPECT_EQ(count_of(plan.train, Op::backward), num_micro * 3);   // head, h.2, h.1
      EXPECT_EQ(count_of(plan.train, Op::recompute), num_micro * 2);  // h.2, h.1
    }
}

// All but layer 1 frozen, on 4 ranks without shared memory, A micro-batches, no prefetch.
// - FULL_SHARD: the layers share one slot. Each micro-batch gathers layers 0, 1, 2 for forward, and layer 1 for
//   backward, where layer 2 is still gathered and layer 0 is not read. Embedding and head stay gathered for the step.
// - SHARD_GRAD_OP: layer 1, once; the others stay gathered for the run.
// Each micro-batch reduces layer 1. Of a gather or reduce a rank sends three quarters; of the counters of the norm,
// three times all.
TEST(FrozenTraffic, CollectivesAndBytesOfOneTrainableLayer) {
  const models::Model model = frozen_model(families[0], frozen_sets[1]);
  const RandomTokens tokens(400, 37);
  const io::Sampler sampler(40, true, 11);
  for (const std::uint64_t micros : {1U, 3U})
    for (const char* strategy : {"FULL_SHARD", "SHARD_GRAD_OP"}) {
      const Variant v{.world = 4,
                      .strategy = strategy,
                      .global_batch = static_cast<std::int64_t>(4 * micros),
                      .prefetch = 0,
                      .copies = true};
      const std::map<std::string, std::uint64_t> gathers =
          strategy[0] == 'F' ? std::map<std::string, std::uint64_t>{{"embed", 1},
                                                                    {"h.0", micros},
                                                                    {"h.1", 2 * micros},
                                                                    {"h.2", micros},
                                                                    {"head", 1}}
                             : std::map<std::string, std::uint64_t>{{"h.1", 1}};
      run_local(
          v.world,
          [&](World& world) {
            train::Trainer trainer(world, options_of(model, v, 2));
            trainer.initialize();
            (void)trainer.step(tokens, sampler, 0, v.global_batch);
            const TrafficCount before = trainer.traffic(Axis::shard);
            (void)trainer.step(tokens, sampler, v.global_batch, v.global_batch);
            const TrafficCount after = trainer.traffic(Axis::shard);

            const shard::ShardLayout& layout = trainer.plan().layout;
            std::uint64_t bytes = 0, collectives = 1;
            for (int u = 0; u < layout.num_units(); ++u) {
              const auto found = gathers.find(layout.unit_name(u));
              const std::uint64_t count =
                  (found != gathers.end() ? found->second : 0) + (layout.trainable(u) ? micros : 0);  // its reduces
              collectives += count;
              bytes += count * static_cast<std::uint64_t>(layout.padded_numel(u)) * sizeof(float);
            }
            const std::uint64_t counters = shard::ShardManager::num_norm_counters(layout.num_units(), /*num_extra=*/0);
            EXPECT_EQ(after.collectives - before.collectives, collectives) << v.str();
            EXPECT_EQ(after.within_node - before.within_node, bytes * 3 / 4 + 3 * counters * sizeof(std::int64_t))
                << v.str();
            EXPECT_EQ(after.across_nodes, 0U);
            EXPECT_EQ(trainer.plan().costs.shard_axis,
                      (TrafficCount{after.within_node - before.within_node, 0, collectives}));
          },
          v.copies);
    }
}

}  // namespace
}  // namespace tessera::test
