// SPDX-License-Identifier: Apache-2.0
// Runs that send int8: over which groups, close to fp32, the same bits on every rank and in every world of threads,
// memory and bytes as planned; residuals through a checkpoint in another world.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "io/checkpoint/checkpoint.hpp"
#include "tests/io/files.hpp"
#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

using Gathers = shard::Compression::Gathers;

const models::Model& model() {
  static const models::Model made = models::make(config_json({}), "test");
  return made;
}
const RandomTokens& tokens() {
  static const RandomTokens made(900, 37);
  return made;
}

/// Two hosts of two ranks.
Variant hybrid() {
  return {.world = 4,
          .strategy = "HYBRID_SHARD",
          .group = 2,
          .global_batch = 8,
          .ranks_per_node = 2,
          .compression = {.gradients = true, .gathers = Gathers::none, .everywhere = false, .error_feedback = true}};
}

Outcome outcome(const Variant& variant, int steps = 5) {
  return run({&model(), &tokens(), steps, "", true, {}}, variant);
}

double largest_change(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

TEST(Int8Runs, OnlyTheGroupsBetweenNodesSendIt) {
  Variant v = hybrid();
  v.compression.gathers = Gathers::all;
  std::vector<std::string> seen(4);
  (void)run({&model(), &tokens(), 1, "", false,
             [&](train::Trainer& trainer) {
               std::string& text = seen[static_cast<std::size_t>(trainer.world().rank())];
               for (const shard::ScheduledUnit& unit : trainer.plan().train.units)
                 text += strfmt("%d%d%d%d ", unit.int8.gather, unit.int8.reduce_scatter, unit.int8.all_reduce,
                                unit.int8.error_feedback);
             }},
            v);
  EXPECT_EQ(seen[0], "0011 0011 0011 0011 ");
  EXPECT_EQ(seen[3], seen[0]);
}

TEST(Int8Runs, AreCloseToFp32AndTheSameInEveryWorldOfThreads) {
  Variant v = hybrid(), plain = hybrid();
  plain.compression = {};
  const Outcome fp32 = outcome(plain), int8 = outcome(v);
  EXPECT_NE(difference(fp32, int8), "");
  for (std::size_t i = 0; i < fp32.losses.size(); ++i) EXPECT_NEAR(int8.losses[i], fp32.losses[i], 0.01) << i;
  EXPECT_EQ(difference(int8, outcome(v)), "");  // again
  v.copies = true;
  EXPECT_EQ(difference(int8, outcome(v)), "");
}

TEST(Int8Runs, EveryStrategySendsItEverywhere) {
  for (const char* strategy : {"0", "1", "2", "3", "HYBRID_SHARD"})
    for (const shard::Reduce reduce : {shard::Reduce::each, shard::Reduce::last}) {
      Variant v = hybrid(), plain = hybrid();
      v.strategy = plain.strategy = strategy;
      v.group = plain.group = std::string(strategy) == "HYBRID_SHARD" ? 2 : 0;
      v.reduce = plain.reduce = reduce;
      v.compression.everywhere = true;
      plain.compression = {};
      const Outcome fp32 = outcome(plain), int8 = outcome(v);
      EXPECT_NE(difference(fp32, int8), "") << v.str();
      for (std::size_t i = 0; i < fp32.losses.size(); ++i)
        EXPECT_NEAR(int8.losses[i], fp32.losses[i], 0.02) << v.str() << " step " << i;
    }
}

TEST(Int8Runs, GatheredWeightsAreRoundedAndMastersAreNot) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const models::Model made = models::make(config_json({}), "test", dtype);
    Variant v{.world = 4, .strategy = "3", .global_batch = 8, .ranks_per_node = 2, .dtype = dtype};
    v.learning_rate = 0;
    v.weight_decay = 0;
    const Outcome plain = run({&made, &tokens(), 2, "", true, {}}, v);
    v.compression = {.gradients = false, .gathers = Gathers::all, .everywhere = false, .error_feedback = true};
    const Outcome int8 = run({&made, &tokens(), 2, "", true, {}}, v);
    EXPECT_EQ(plain.params, int8.params);  // nothing was learned, and nothing was rounded
    EXPECT_NE(plain.losses[0], int8.losses[0]);
    EXPECT_NEAR(plain.losses[0], int8.losses[0], 0.02);
    v.copies = true;
    EXPECT_EQ(difference(int8, run({&made, &tokens(), 2, "", true, {}}, v)), "");
  }
}

TEST(Int8Runs, MemoryAndTrafficAsPlanned) {
  for (const bool copies : {false, true})
    for (const bool everywhere : {false, true})
      for (const char* strategy : {"0", "3", "HYBRID_SHARD"}) {
        Variant v = hybrid();
        v.strategy = strategy;
        v.group = std::string(strategy) == "HYBRID_SHARD" ? 2 : 0;
        v.copies = copies;
        v.compression.everywhere = everywhere;
        v.compression.gathers = std::string(strategy) == "3" ? Gathers::all : Gathers::none;
        (void)run({&model(), &tokens(), 1, "", false,
                   [&](train::Trainer& trainer) {
                     const plan::RunPlan& plan = trainer.plan();
                     EXPECT_EQ(plan::compare_memory(plan, trainer.measured_memory()), "") << v.str();
                     EXPECT_EQ(trainer.arena().broken_canary(), "");
                     for (std::size_t g = 0; g < plan.groups.all.size(); ++g) {
                       const TrafficCount sent = trainer.traffic(plan.groups.all[g]), planned = plan.costs.traffic[g];
                       EXPECT_EQ(sent.within_node, planned.within_node) << v.str();
                       EXPECT_EQ(sent.across_nodes, planned.across_nodes) << v.str();
                     }
                   }},
                  v);
      }
}

TEST(Int8Runs, WithOffloadTheyHaveTheBitsOfTheResidentRun) {
  using shard::Tier;
  for (const char* strategy : {"1", "3", "HYBRID_SHARD"})
    for (const Tier params : {Tier::device, Tier::host}) {
      if (params == Tier::host && std::string(strategy) == "1") continue;
      Variant v = hybrid();
      v.strategy = strategy;
      v.group = std::string(strategy) == "HYBRID_SHARD" ? 2 : 0;
      v.copies = true;
      v.compression.everywhere = true;
      v.compression.gathers = std::string(strategy) == "1" ? Gathers::none : Gathers::all;
      const Outcome resident = outcome(v, 3);
      v.placement = {params, Tier::host, Tier::host};
      RunInput input{&model(), &tokens(), 3, "", true, [&](train::Trainer& trainer) {
                       EXPECT_EQ(plan::compare_memory(trainer.plan(), trainer.measured_memory()), "") << v.str();
                       EXPECT_EQ(trainer.arena().broken_canary(), "");
                     }};
      EXPECT_EQ(difference(resident, run(input, v)), "") << v.str();
    }
}

TEST(Int8Runs, ReplicasSendAQuarterOfTheBytes) {
  const auto sent = [](const Variant& v) {
    std::uint64_t bytes = 0;
    (void)run({&model(), &tokens(), 1, "", false,
               [&](train::Trainer& trainer) {
                 if (trainer.world().rank() == 0) bytes = trainer.plan().costs.replicate_axis.across_nodes;
               }},
              v);
    return static_cast<double>(bytes);
  };
  Variant plain = hybrid();
  plain.compression = {};
  EXPECT_NEAR(sent(hybrid()) / sent(plain), (1 + 4.0 / 256) / 4, 0.02);
}

std::string refusal(const Variant& v) {
  try {
    (void)outcome(v, 1);
  } catch (const Error& error) { return error.line(); }
  return "nothing was refused";
}

TEST(Int8Runs, RefusalsNameTheOption) {
  Variant v = hybrid();
  v.reproducible = true;
  EXPECT_NE(refusal(v).find("reproducible runs have the same bits"), std::string::npos) << refusal(v);
  v = {.world = 4, .strategy = "2", .global_batch = 8, .copies = true, .ranks_per_node = 2};
  v.compression.gathers = Gathers::all;
  EXPECT_NE(refusal(v).find("[gather_dtype]"), std::string::npos) << refusal(v);
}

/// The sum over ranks of the residuals, in canonical order, and what `at_end` does then.
struct Residuals {
  std::vector<float> sum;
  std::vector<double> losses;
};

Residuals train_part(const Variant& v, const std::string& from, const std::string& to, int steps) {
  Residuals out;
  out.sum.resize(static_cast<std::size_t>(model().num_params()));
  std::mutex mutex;
  const io::Sampler sampler(io::count_samples(tokens(), v.tokens).samples, true, 11);
  run_local(
      v.world,
      [&](World& world) {
        train::Trainer trainer(world, options_of(model(), v, 8));
        int first = 0;
        if (from.empty()) {
          trainer.initialize();
        } else {
          const io::CheckpointReader reader(world, from);
          first = static_cast<int>(reader.manifest().step);
          (void)reader.load(model().params, trainer.plan().layout, trainer.state());
          trainer.parameters_changed();
          trainer.resume_at({first, 0, 0});
        }
        for (int step = first; step < first + steps; ++step) {
          const auto report = trainer.step(tokens(), sampler, step * v.global_batch, v.global_batch);
          const std::lock_guard lock(mutex);
          if (world.rank() == 0) out.losses.push_back(report.loss);
        }
        trainer.collect_residuals();
        const io::TrainingState state = trainer.state();
        const shard::ShardLayout& layout = trainer.plan().layout;
        std::vector<std::int64_t> offsets;
        std::int64_t total = 0;
        for (const auto& param : model().params) offsets.push_back(std::exchange(total, total + param.numel()));
        {
          const std::lock_guard lock(mutex);
          for (const auto& view : state.shards)
            for (const auto& s : layout.segments(view.unit, view.shard))
              std::copy_n(view.data.back().as<float>() + (s.unit_offset - view.shard * layout.shard_numel(view.unit)),
                          s.length, out.sum.data() + offsets[static_cast<std::size_t>(s.param)] + s.param_offset);
        }
        if (to.empty()) return;
        io::SaveRequest request;
        request.directory = to;
        request.step = first + steps;
        request.params = model().params;
        request.layout = &layout;
        request.state = state;
        (void)io::CheckpointSave(world, request).commit();
      },
      v.copies, v.ranks_per_node);
  return out;
}

TEST(Int8Runs, ResidualsGoOnInAnotherWorld) {
  const TempDir folder(TempDir::Storage::memory);
  const std::string path = folder / "checkpoint-3";
  const Residuals saved = train_part(hybrid(), "", path, 3);
  EXPECT_GT(largest_change(saved.sum, std::vector<float>(saved.sum.size())), 1e-7);
  Variant flat{.world = 2, .strategy = "3", .global_batch = 8, .copies = true, .ranks_per_node = 1};
  flat.compression = hybrid().compression;
  Variant plain = hybrid();
  plain.strategy = "0";
  plain.group = 0;
  plain.compression.everywhere = true;
  for (const Variant& v : {hybrid(), flat, plain}) {
    const Residuals loaded = train_part(v, path, "", 0);
    EXPECT_LE(largest_change(saved.sum, loaded.sum), 0.0) << v.str();  // the same numbers
    EXPECT_TRUE(std::isfinite(train_part(v, path, "", 2).losses.back()));
  }
}

}  // namespace
}  // namespace tessera::test
