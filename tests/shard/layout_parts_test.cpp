// SPDX-License-Identifier: Apache-2.0
// ShardLayout where parameters have parts on the ranks of the tensor axis: every element of every whole parameter is in
// one shard of one part, whatever the strategy.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "runtime/base/at.hpp"
#include "runtime/shard/layout.hpp"
#include "runtime/shard/replica_segments.hpp"
#include "runtime/shard/tensor.hpp"

namespace tessera::test {
namespace {

using namespace shard;

ParamSpec part_of(const char* name, Shape shape, TensorPlacement placement = {}) {
  ParamSpec spec;
  spec.name = name;
  spec.shape = shape;
  spec.placement = std::move(placement);
  return spec;
}

struct Parts {
  std::vector<ParamSpec> params;
  std::vector<UnitSpec> units;
  Strategy strategy;
};

/// Rows, columns, three sections, rows and columns of which one part has one more, and a replicated vector; 2 ranks
/// have parts.
Parts parts_on(const char* word, int world, int group) {
  Parts made;
  made.params = {part_of("q", {30, 20}, {2, 0}),
                 part_of("o", {20, 30}, {2, 1}),
                 part_of("qkv", {4097, 3}, {2, 0, {2, 8, 8184}}),
                 part_of("norm", {1037}),
                 part_of("embed", {26, 20}, {2, 0, {}, 51}),
                 part_of("lora_embedding_A", {5, 26}, {2, 1, {}, 51})};
  made.strategy = with_tensor(make_strategy(word, world, group, world), 2);
  made.units = {
      {.name = "h.0", .params = {0, 1, 2, 4, 5}, .split = true, .policy = made.strategy.policy},
      {.name = "h.0.replicated", .params = {3}, .policy = replicated(made.strategy.policy, made.strategy.mesh)}};
  return made;
}

TEST(LayoutParts, EveryElementOfEveryWholeParameterIsSavedOnce) {
  for (const auto& [word, world, group] : {std::tuple{"3", 4, 0}, {"0", 4, 0}, {"2", 2, 0}, {"HYBRID_SHARD", 8, 4}}) {
    const Parts made = parts_on(word, world, group);
    const ShardLayout layout(made.params, made.units, made.strategy.mesh);
    std::map<int, std::vector<int>> held, saved;
    for (std::size_t p = 0; p < made.params.size(); ++p)
      for (auto* counts : {&held, &saved})
        (*counts)[static_cast<int>(p)].resize(static_cast<std::size_t>(made.params[p].whole_shape().numel()));
    const auto count = [](std::map<int, std::vector<int>>& counts, const std::vector<Segment>& segments) {
      for (const Segment& s : segments)
        for (std::int64_t i = 0; i < s.length; ++i) ++counts[s.param][static_cast<std::size_t>(s.param_offset + i)];
    };
    for (int rank = 0; rank < world; ++rank)
      for (int u = 0; u < layout.num_units(); ++u) {
        const int part = layout.part_of(u, rank);
        EXPECT_EQ(part, u == 0 ? rank % 2 : 0);
        if (layout.replica_of(u, rank) == 0) count(held, layout.whole_segments(u, layout.shard_of(u, rank), part));
        count(saved, replica_segments(layout, u, rank));
      }
    for (const auto* counts : {&held, &saved})
      for (const auto& [p, of] : *counts)
        EXPECT_TRUE(std::ranges::all_of(of, [](int n) { return n == 1; })) << word << " " << made.params[at(p)].name;
  }
}

/// Else a gradient would be a sum over too few ranks, or parts would be added to one another.
TEST(LayoutParts, UnitsAreOverTheAxesOfTheirParameters) {
  Parts made = parts_on("3", 4, 0);
  std::swap(made.units[0].policy, made.units[1].policy);
  EXPECT_THROW(ShardLayout(made.params, made.units, made.strategy.mesh), std::logic_error);
  made = parts_on("3", 4, 0);
  made.units[0].params = {0, 1, 2, 3, 4, 5};
  made.units.pop_back();
  EXPECT_THROW(ShardLayout(made.params, made.units, made.strategy.mesh), std::logic_error);
}

}  // namespace
}  // namespace tessera::test
