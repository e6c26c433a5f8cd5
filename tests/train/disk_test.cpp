// SPDX-License-Identifier: Apache-2.0
// States that are kept on disk: the bits of the run without offload, the memory that the plan says, and a disk that
// fails is an error that names the state.

#include <gtest/gtest.h>

#include <filesystem>

#include "models/lora.hpp"
#include "tests/fault_injection/shim.hpp"
#include "tests/io/files.hpp"
#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

using shard::StatePlacement;
using shard::Tier;

constexpr StatePlacement optimizer_alone{Tier::device, Tier::host, Tier::disk},
    optimizer_offloaded{Tier::device, Tier::disk, Tier::disk}, params_on_host{Tier::host, Tier::host, Tier::disk},
    all_away{Tier::disk, Tier::disk, Tier::disk};

Outcome outcome(const models::Model& model, const Variant& v) {
  static const RandomTokens tokens(400, 37);
  const auto memory_is_as_planned = [&](train::Trainer& trainer) {
    const plan::RunPlan& plan = trainer.plan();
    EXPECT_EQ(plan::compare_memory(plan, trainer.measured_memory()), "");
    EXPECT_EQ(plan.costs.in[static_cast<int>(Memory::disk)] > 0, !v.nvme_path.empty());
  };
  return run({&model, &tokens, 2, "", /*evaluate=*/true, memory_is_as_planned}, v);
}

void expect_same_bits(const models::Model& model, const Variant& resident,
                      std::initializer_list<StatePlacement> placements) {
  const Outcome expected = outcome(model, resident);
  const TempDir folder(TempDir::Storage::memory);
  for (const StatePlacement& placement : placements) {
    Variant v = resident;
    v.placement = placement;
    v.nvme_path = folder.path();
    EXPECT_EQ(difference(outcome(model, v), expected), "") << v.str();
  }
  EXPECT_TRUE(folder.names().empty()) << "scratch files are left";
}

TEST(Disk, SameBitsAsResident) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const models::Model model = models::make(config_json({}), "test", dtype);
    expect_same_bits(model, {.world = 2, .global_batch = 6, .dtype = dtype},
                     {optimizer_alone, optimizer_offloaded, params_on_host, all_away});
    expect_same_bits(model, {.world = 1, .global_batch = 2, .dtype = dtype}, {optimizer_offloaded, all_away});
    expect_same_bits(model, {.world = 3, .strategy = "1", .global_batch = 7, .dtype = dtype}, {optimizer_offloaded});
    expect_same_bits(model, {.world = 4, .strategy = "HYBRID_SHARD", .group = 2, .global_batch = 8, .dtype = dtype},
                     {all_away});
  }
}

TEST(Disk, SameBitsWhateverTheOrderOfStreams) {
  const models::Model model = models::make(config_json({}), "test", DType::bf16);
  Variant v{.world = 2, .global_batch = 6, .recompute = true, .dtype = DType::bf16};
  v.streams = Stream::Mode::deferred;
  expect_same_bits(model, v, {optimizer_offloaded, all_away});
  v.reproducible = true;
  expect_same_bits(model, v, {all_away});
}

TEST(Disk, OtherOptimizersSkippedStepsAndFrozenParameters) {
  const models::Model model = models::make(config_json({}), "test");
  expect_same_bits(model, {.world = 2, .global_batch = 6, .optimizer = {.kind = train::OptimizerKind::adamw_8bit}},
                   {optimizer_offloaded, all_away});
  const models::Model half = models::make(config_json({}), "test", DType::f16);
  expect_same_bits(half, {.world = 2, .dtype = DType::f16, .loss_scale = {.initial = 0x1p60}},  // overflows at first
                   {optimizer_offloaded, all_away});
  models::Model adapted = models::make(config_json({.layers = 3}), "test", DType::bf16);
  models::add_lora(adapted, {.rank = 3, .alpha = 6, .dropout = 0.3});
  expect_same_bits(adapted, {.world = 2, .global_batch = 6, .dtype = DType::bf16}, {all_away});
}

// A read of each kind of state fails, and a bit is another one.
TEST(Disk, AFailingDiskEndsTheRunAndNamesTheState) {
  const models::Model model = models::make(config_json({}), "test", DType::bf16);
  for (const char* kind : {"EIO", "flip"}) {
    const TempDir folder;
    Variant v{.world = 1, .global_batch = 1, .dtype = DType::bf16};
    v.placement = all_away;
    v.nvme_path = std::filesystem::canonical(folder.path()).string();
    std::string said;
    fault_reads(1);
    fault_arm(v.nvme_path.c_str(), "tessera-scratch", 7, kind);
    try {
      (void)outcome(model, v);
    } catch (const Error& error) {
      said = error.line();
      EXPECT_EQ(error.code(), ExitCode::data);
    }
    (void)fault_disarm();
    fault_reads(0);
    EXPECT_THAT(said, testing::HasSubstr(std::string(kind) == "EIO" ? "cannot read " + v.nvme_path
                                                                    : "is not what was written"));
    EXPECT_THAT(said, testing::ContainsRegex("\\[state [a-z_.0]+ of unit "));
    EXPECT_TRUE(folder.names().empty()) << "scratch files are left";
  }
}

}  // namespace
}  // namespace tessera::test
