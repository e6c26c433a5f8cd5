// SPDX-License-Identifier: Apache-2.0
// ShardLayout: every element of every parameter is in exactly one shard, on any mesh.

#include "runtime/shard/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <stdexcept>

#include "runtime/base/error.hpp"
#include "runtime/shard/groups.hpp"
#include "runtime/shard/sum_bounds.hpp"

namespace tessera::test {
namespace {

using shard::Segment;
using shard::ShardLayout;
using shard::UnitPolicy;
using shard::UnitSpec;

ParamSpec param(const std::string& name, Shape shape) {
  ParamSpec spec;
  spec.name = name;
  spec.shape = shape;
  return spec;
}

struct Model {
  std::vector<ParamSpec> params;
  std::vector<UnitSpec> units;
};

/// Odd shapes, a parameter of one element, one smaller than any world, a unit of one tiny parameter, an empty
/// parameter.
Model odd_model() {
  Model m;
  m.params = {param("wte", {257, 48}), param("wpe", {33, 48}), param("w", {48, 144}),  param("b", {144}),
              param("one", {1}),       param("tiny", {7}),     param("empty", {0, 5}), param("ln", {48})};
  m.units = {{"embed", {0, 1}}, {"h.0", {2, 3, 4, 6}}, {"tiny", {5}}, {"head", {7}}};
  return m;
}

std::vector<Mesh> meshes(int world) {
  std::vector<Mesh> out;
  for (int s = 1; s <= world; ++s) {
    if (world % s == 0) out.emplace_back(world / s, s);
  }
  return out;
}

void expect_partition(const ShardLayout& layout, const Model& model) {
  std::map<int, std::vector<int>> owners;  // parameter → by element
  for (std::size_t p = 0; p < model.params.size(); ++p)
    owners[static_cast<int>(p)].assign(static_cast<std::size_t>(model.params[p].numel()), 0);
  for (int u = 0; u < layout.num_units(); ++u) {
    std::vector<Segment> segments;
    for (int s = 0; s < layout.num_shards(u); ++s) {
      for (const Segment& segment : layout.segments(u, s)) {
        EXPECT_EQ(layout.unit_of(segment.param), u);
        EXPECT_GT(segment.length, 0);
        EXPECT_EQ(segment.unit_offset, layout.offset_of(segment.param) + segment.param_offset);
        EXPECT_GE(segment.unit_offset, s * layout.shard_numel(u));
        EXPECT_LE(segment.unit_offset + segment.length, (s + 1) * layout.shard_numel(u));
        for (std::int64_t e = 0; e < segment.length; ++e)
          ++owners[segment.param][static_cast<std::size_t>(segment.param_offset + e)];
      }
    }
  }
  for (const auto& [p, count] : owners) {
    for (std::size_t e = 0; e < count.size(); ++e)
      ASSERT_EQ(count[e], 1) << model.params[static_cast<std::size_t>(p)].name << " element " << e;
  }
}

void expect_aligned_and_covered(const ShardLayout& layout, const Model& model) {
  for (int u = 0; u < layout.num_units(); ++u) {
    EXPECT_EQ(layout.shard_numel(u) % ShardLayout::quantum({}), 0);
    EXPECT_EQ(layout.shard_numel(u) * layout.num_shards(u), layout.padded_numel(u));
    std::int64_t covered = 0, numel = 0;
    for (const auto& [offset, length] : layout.gaps(u)) covered += length;
    for (const Segment& segment : layout.all_segments(u)) {
      EXPECT_EQ(segment.unit_offset % ShardLayout::param_alignment, 0);
      EXPECT_EQ(segment.length, model.params[static_cast<std::size_t>(segment.param)].numel());
      covered += segment.length;
      numel += segment.length;
    }
    EXPECT_EQ(covered, layout.padded_numel(u));  // parameters and gaps, nothing twice
    EXPECT_EQ(numel, layout.numel(u));
  }
}

TEST(Layout, EveryElementIsInOneShard) {
  const Model model = odd_model();
  for (const int world : {1, 2, 3, 4, 5, 6, 7, 8, 9, 128}) {
    const ShardLayout first(model.params, model.units, Mesh(world, 1));
    for (const Mesh& mesh : meshes(world)) {
      SCOPED_TRACE(mesh.str());
      const ShardLayout layout(model.params, model.units, mesh);
      expect_partition(layout, model);
      expect_aligned_and_covered(layout, model);
      for (int u = 0; u < layout.num_units(); ++u) {  // the flat buffer does not depend on the number of shards
        EXPECT_EQ(layout.padded_numel(u), first.padded_numel(u));
        EXPECT_EQ(layout.padded_numel(u) % (world * ShardLayout::quantum({})), 0);
        EXPECT_EQ(layout.all_segments(u), first.all_segments(u));
      }
    }
  }
}

/// Shard and replicate axes of units, as any two sets of axes without a common one.
std::vector<UnitPolicy> policies(const std::vector<AxisSet>& sets) {
  std::vector<UnitPolicy> out;
  for (const AxisSet shard : sets)
    for (const AxisSet replicate : sets) {
      UnitPolicy policy;
      policy.shard_axes = shard;
      policy.replicate_axes = replicate;
      bool apart = true;
      for (int a = 0; a < num_axes; ++a)
        apart = apart && !(shard.contains(static_cast<Axis>(a)) && replicate.contains(static_cast<Axis>(a)));
      if (apart) out.push_back(policy);
    }
  return out;
}

// Units over any of three axes: padded for their own groups, not for the world; the ranks of a shard group hold every
// element once, and those of a replicate group the same.
TEST(Layout, UnitsOverAnyOfThreeAxes) {
  const std::vector<AxisSet> sets = {{},
                                     Axis::replicate,
                                     Axis::shard,
                                     Axis::expert,
                                     Axis::replicate | Axis::shard,
                                     Axis::replicate | Axis::expert,
                                     Axis::shard | Axis::expert,
                                     Axis::replicate | Axis::shard | Axis::expert};
  for (const auto& sizes : {std::vector<AxisSize>{{Axis::replicate, 2}, {Axis::shard, 3}, {Axis::expert, 4}},
                            {{Axis::expert, 2}, {Axis::replicate, 5}, {Axis::shard, 1}},
                            {{Axis::shard, 4}, {Axis::expert, 2}, {Axis::replicate, 3}}}) {
    const Mesh mesh(sizes);
    for (const UnitPolicy& policy : policies(sets))
      for (const bool trainable : {true, false}) {
        SCOPED_TRACE(mesh.str() + " " + policy.shard_axes.str() + " " + policy.replicate_axes.str());
        Model model = odd_model();
        for (ParamSpec& spec : model.params) spec.trainable = trainable;
        for (UnitSpec& unit : model.units) {
          unit.policy = policy;
          unit.trainable = trainable;
        }
        const ShardLayout layout(model.params, model.units, mesh);
        expect_partition(layout, model);
        expect_aligned_and_covered(layout, model);
        const int shards = mesh.size(policy.shard_axes), replicas = mesh.size(policy.replicate_axes);
        for (int u = 0; u < layout.num_units(); ++u) {
          ASSERT_EQ(layout.num_shards(u), shards);
          ASSERT_EQ(layout.num_replicas(u), replicas);
          const std::int64_t step = ShardLayout::quantum({}) * shards * (trainable ? replicas : 1);
          const Segment last = layout.all_segments(u).back();
          EXPECT_EQ(layout.padded_numel(u), (last.unit_offset + last.length + step - 1) / step * step);
          for (int rank = 0; rank < mesh.world(); ++rank) {
            const std::vector<int> group = mesh.members(rank, policy.shard_axes),
                                   same = mesh.members(rank, policy.replicate_axes);
            for (int s = 0; s < shards; ++s) EXPECT_EQ(layout.shard_of(u, group[static_cast<std::size_t>(s)]), s);
            for (int r = 0; r < replicas; ++r) {
              const int peer = same[static_cast<std::size_t>(r)];
              EXPECT_EQ(layout.replica_of(u, peer), r);
              EXPECT_EQ(layout.shard_of(u, peer), layout.shard_of(u, rank));
            }
          }
        }
      }
  }
}

// An expert unit and a dense one on the mesh {replicate 2, shard 2, expert 2}, by hand.
TEST(Layout, ExpertsAndOthersByHand) {
  const Mesh mesh({{Axis::replicate, 2}, {Axis::shard, 2}, {Axis::expert, 2}});
  Model model;
  model.params = {param("dense", {1000}), param("experts", {1000})};
  model.units = {{"h.0", {0}}, {"h.0.experts", {1}}};
  model.units[0].policy.shard_axes = Axis::shard | Axis::expert;
  model.units[0].policy.replicate_axes = Axis::replicate;
  model.units[1].policy.shard_axes = Axis::shard;  // each rank of the expert axis has other experts
  model.units[1].policy.replicate_axes = Axis::replicate;
  const ShardLayout layout(model.params, model.units, mesh);
  EXPECT_EQ(layout.padded_numel(0), 1024);  // 128 x 4 shards x 2 replicas
  EXPECT_EQ(layout.shard_numel(0), 256);
  EXPECT_EQ(layout.padded_numel(1), 1024);  // 128 x 2 x 2, twice
  EXPECT_EQ(layout.shard_numel(1), 512);
  const int shards[] = {0, 1, 2, 3, 0, 1, 2, 3}, of_experts[] = {0, 0, 1, 1, 0, 0, 1, 1};
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(layout.shard_of(0, rank), shards[rank]);
    EXPECT_EQ(layout.shard_of(1, rank), of_experts[rank]);
    EXPECT_EQ(layout.replica_of(0, rank), rank / 4);
    EXPECT_EQ(layout.replica_of(1, rank), rank / 4);
  }
}

// The communicators of units over different axes of three: each set of axes with more than one rank once, and norm over
// the world.
TEST(Layout, GroupsOfUnitsOverThreeAxes) {
  const auto unit = [](AxisSet shard_axes, AxisSet replicate_axes, bool trainable = true) {
    return shard::ScheduledUnit{.trainable = trainable, .shard_axes = shard_axes, .replicate_axes = replicate_axes};
  };
  const AxisSet all = Axis::replicate | Axis::shard | Axis::expert, dense = Axis::shard | Axis::expert;
  const Mesh mesh({{Axis::replicate, 2}, {Axis::shard, 2}, {Axis::expert, 2}});
  const shard::Groups groups = shard::groups_of(
      {unit(dense, Axis::replicate), unit(Axis::shard, Axis::replicate), unit(dense, Axis::replicate)}, mesh);
  // Without a unit over the world, norm takes one axis after the other.
  EXPECT_EQ(groups.all, (std::vector<AxisSet>{dense, Axis::replicate, Axis::shard, Axis::expert}));
  EXPECT_EQ(groups.norm, (std::vector<AxisSet>{Axis::expert, Axis::shard, Axis::replicate}));
  EXPECT_EQ(groups.index_of(Axis::shard), 2);
  EXPECT_EQ(groups.index_of(Axis::replicate | Axis::expert), -1);
  EXPECT_EQ(groups.index_of({}), -1);
  const shard::Groups world = shard::groups_of({unit({}, all), unit(Axis::shard, Axis::replicate, false)}, mesh);
  EXPECT_EQ(world.all, (std::vector<AxisSet>{all, Axis::shard}));  // a frozen unit is never reduced
  EXPECT_EQ(world.norm, std::vector<AxisSet>{all});
  // An axis of one rank is in no group.
  const Mesh flat({{Axis::replicate, 1}, {Axis::shard, 4}, {Axis::expert, 2}});
  const shard::Groups two = shard::groups_of({unit(Axis::shard, {})}, flat);
  EXPECT_EQ(two.all, (std::vector<AxisSet>{Axis::shard, Axis::expert}));
  EXPECT_EQ(two.norm, (std::vector<AxisSet>{Axis::expert, Axis::shard}));
}

// The first parameter of a module begins a block of the norm, whatever lies before it in the unit.
TEST(Layout, ModulesThatShareAUnitBeginWithABlockOfTheNorm) {
  Model model;
  for (int p = 0; p < 6; ++p) model.params.push_back(param("p" + std::to_string(p), {p % 2 == 0 ? 75 : 40}));
  for (const std::int64_t block : {1, 256}) {
    model.units = {{"h.0", {0, 1}}, {"h.1", {2, 3}}, {"h.2", {4, 5}}};
    for (UnitSpec& unit : model.units) unit.granularity = block;
    const ShardLayout apart(model.params, model.units, Mesh(1, 3));
    model.units = {{"h.0-2", {0, 1, 2, 3, 4, 5}}};
    model.units[0].granularity = block;
    model.units[0].module_firsts = {0, 2, 4};
    const ShardLayout together(model.params, model.units, Mesh(1, 3));
    expect_partition(together, model);
    expect_aligned_and_covered(together, model);
    for (int p = 0; p < 6; ++p) EXPECT_EQ(together.offset_of(p) % 128, apart.offset_of(p) % 128) << p;
    EXPECT_EQ(together.offset_of(2), block == 1 ? 256 : 512);  // not 192
    EXPECT_EQ(together.offset_of(3), block == 1 ? 384 : 768);
  }
}

TEST(Layout, RandomModels) {
  std::mt19937 random(3);
  for (int round = 0; round < 30; ++round) {
    Model model;
    const int num_units = 1 + static_cast<int>(random() % 5);
    for (int u = 0; u < num_units; ++u) model.units.push_back({"u" + std::to_string(u), {}});
    const int num_params = num_units + static_cast<int>(random() % 12);
    for (int p = 0; p < num_params; ++p) {
      model.params.push_back(param("p" + std::to_string(p), {1 + static_cast<std::int64_t>(random() % 900)}));
      model.units[static_cast<std::size_t>(p) % model.units.size()].params.push_back(p);
    }
    const int world = 1 + static_cast<int>(random() % 11);
    for (const Mesh& mesh : meshes(world)) {
      const ShardLayout layout(model.params, model.units, mesh);
      expect_partition(layout, model);
      expect_aligned_and_covered(layout, model);
    }
  }
}

TEST(Layout, NoBlockOfAnOptimizersStatesCrossesAShard) {
  Model model = odd_model();
  constexpr std::int64_t block = 256;
  for (UnitSpec& unit : model.units) unit.granularity = block;
  for (const int world : {1, 2, 3, 5, 8}) {
    const ShardLayout layout(model.params, model.units, Mesh(1, world));
    expect_partition(layout, model);
    expect_aligned_and_covered(layout, model);
    for (int u = 0; u < layout.num_units(); ++u) {
      EXPECT_EQ(layout.shard_numel(u) % block, 0);
      for (int s = 0; s < world; ++s)
        for (const Segment& segment : layout.segments(u, s)) {
          EXPECT_EQ(segment.unit_offset % block, 0);
          EXPECT_EQ(segment.param_offset % block, 0);
        }
    }
  }
}

TEST(Layout, ATinyUnitIsPaddedToAQuantumForEachRank) {
  const Model model = odd_model();
  const ShardLayout layout(model.params, model.units, Mesh(1, 9));
  EXPECT_EQ(layout.padded_numel(2), 9 * 128);
  EXPECT_EQ(layout.segments(2, 0).size(), 1u);
  for (int s = 1; s < 9; ++s) EXPECT_TRUE(layout.segments(2, s).empty());
  EXPECT_EQ(layout.gaps(2), (std::vector<std::pair<std::int64_t, std::int64_t>>{{7, 9 * 128 - 7}}));
}

TEST(Layout, AParameterInNoUnitOrInTwoIsABug) {
  Model model = odd_model();
  const auto error = [&]() -> std::string {
    try {
      (void)ShardLayout(model.params, model.units, Mesh(1, 2));
    } catch (const std::logic_error& e) { return e.what(); }
    return "";
  };
  model.units[3].params.clear();
  EXPECT_EQ(error(), model.params[7].name + " is in no unit");
  model.units[3].params = {7, 0};
  EXPECT_EQ(error(), model.params[0].name + " is in two units: " + model.units[0].name + " and " + model.units[3].name);
  model.units[3].params = {7, 8};
  EXPECT_THROW(ShardLayout(model.params, model.units, Mesh(1, 2)), std::logic_error);
}

/// A unit of 2^37 · ranks elements: 2^30 blocks of 128 on each rank.
TEST(SumBounds, ARunWhoseSumsCouldOverflowIsRefused) {
  constexpr std::int64_t bound = std::int64_t{1} << 37;
  for (const int ranks : {1, 4}) {
    const Mesh mesh(2, ranks);
    const std::vector<UnitSpec> units = {{"h.0", {0}}, {"h.1", {1}}};
    const auto layout = [&](std::int64_t more) {
      return ShardLayout(std::vector{param("w", {bound, ranks}), param("v", {bound + more, ranks})}, units, mesh);
    };
    const ShardLayout at = layout(0), above = layout(4096);
    ASSERT_EQ(at.shard_numel(1), bound);
    EXPECT_NO_THROW(shard::require_within_bounds({.layout = &at, .mesh = mesh, .tokens = 1 << 30}));
    EXPECT_NO_THROW(shard::require_within_bounds({.layout = &above, .mesh = mesh, .tokens = 1 << 30, .trains = false}));
    EXPECT_THROW(shard::require_within_bounds({.layout = &at, .mesh = mesh, .tokens = (1 << 30) + 1}), Error);
    try {
      shard::require_within_bounds({.layout = &above, .mesh = mesh, .tokens = 1});
      FAIL() << "nothing was thrown";
    } catch (const Error& error) { EXPECT_NE(error.line().find("unit h.1"), std::string::npos) << error.line(); }
  }
  const Mesh world(1 << 10, (1 << 20) + 1);
  const ShardLayout empty;
  EXPECT_THROW(shard::require_within_bounds({.layout = &empty, .mesh = world}), Error);
}

}  // namespace
}  // namespace tessera::test
