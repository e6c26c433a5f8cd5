// SPDX-License-Identifier: Apache-2.0
// The table of strategies.

#include "runtime/shard/policy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.hpp"
#include "runtime/shard/context.hpp"
#include "runtime/shard/tensor.hpp"

namespace tessera::test {
namespace {

using shard::all_strategies;
using shard::make_strategy;
using shard::Strategy;
using testing::HasSubstr;

void expect_row(const char* word, int group, const char* name, const Mesh& mesh, bool grads, bool params) {
  SCOPED_TRACE(word);
  const Strategy s = make_strategy(word, 8, group, 4);
  EXPECT_EQ(s.name, name);
  EXPECT_EQ(s.mesh, mesh) << s.mesh.str();
  EXPECT_EQ(s.policy.shard_grads, grads);
  EXPECT_EQ(s.policy.shard_params, params);
  EXPECT_EQ(s.policy.reduce, shard::Reduce::each);
}

TEST(Strategies, TheTable) {
  for (const char* word : {"0", "zero0", "ZeRO0", "NO_SHARD", "no_shard", "ZeRO-0"})
    expect_row(word, 0, "ZeRO-0", Mesh(8, 1), false, false);
  for (const char* word : {"1", "zero1", "ZERO1", "ZeRO-1"}) expect_row(word, 0, "ZeRO-1", Mesh(1, 8), false, false);
  for (const char* word : {"2", "zero2", "SHARD_GRAD_OP", "Shard_Grad_Op"})
    expect_row(word, 0, "ZeRO-2", Mesh(1, 8), true, false);
  for (const char* word : {"3", "zero3", "FULL_SHARD", "full_shard"})
    expect_row(word, 0, "ZeRO-3", Mesh(1, 8), true, true);
  for (const char* word : {"HYBRID_SHARD", "hybrid_shard"}) expect_row(word, 0, "HYBRID_SHARD", Mesh(2, 4), true, true);
  expect_row("HYBRID_SHARD_ZERO2", 0, "hybrid ZeRO-2", Mesh(2, 4), true, false);
  expect_row("HYBRID_SHARD", 2, "HYBRID_SHARD", Mesh(4, 2), true, true);
  expect_row("1", 2, "hybrid ZeRO-1", Mesh(4, 2), false, false);
  expect_row("2", 4, "hybrid ZeRO-2", Mesh(2, 4), true, false);
  expect_row("3", 4, "HYBRID_SHARD", Mesh(2, 4), true, true);
  expect_row("3", 8, "ZeRO-3", Mesh(1, 8), true, true);
  expect_row("3", 1, "HYBRID_SHARD", Mesh(8, 1), true, true);
}

TEST(Strategies, OfSingleUnits) {
  const AxisSet all = Axis::replicate | Axis::shard;
  // A HYBRID unit gives the run a mesh of two axes; the run's own strategy keeps its meaning.
  const Strategy mixed = make_strategy("3", 8, 0, 4, {{"h.*", "HYBRID_SHARD"}, {"h.1", "0"}, {"head", "2"}});
  EXPECT_EQ(mixed.name, "ZeRO-3, mixed");
  EXPECT_EQ(mixed.mesh, Mesh(2, 4));
  EXPECT_EQ(mixed.unit_policy("embed").shard_axes, all);
  EXPECT_EQ(mixed.unit_policy("h.0").shard_axes, Axis::shard);
  EXPECT_EQ(mixed.unit_policy("h.1").replicate_axes, all);  // the last match
  EXPECT_EQ(mixed.unit_policy("head").shard_axes, all);
  EXPECT_FALSE(mixed.unit_policy("head").shard_params);
  // With a group size the run's 3 is HYBRID_SHARD, whatever its units are; the word 3 of a unit is not.
  const Strategy grouped = make_strategy("3", 8, 2, 4, {{"h.0", "HYBRID_SHARD"}, {"h.1", "3"}});
  EXPECT_EQ(grouped.mesh, Mesh(4, 2));
  EXPECT_EQ(grouped.unit_policy("embed").shard_axes, Axis::shard);
  EXPECT_EQ(grouped.unit_policy("h.0").shard_axes, Axis::shard);
  EXPECT_EQ(grouped.unit_policy("h.1").shard_axes, all);
}

/// Ranks that have parts of matrices follow one another; replicated parameters are sharded over them, parts are not.
TEST(Strategies, WithRanksThatShareMatrices) {
  const Strategy three = shard::with_tensor(make_strategy("3", 8, 0, 4), 2),
                 zero = shard::with_tensor(make_strategy("0", 8, 0, 4), 2),
                 hybrid = shard::with_tensor(make_strategy("HYBRID_SHARD", 8, 4, 4), 2);
  EXPECT_EQ(three.mesh, Mesh({{Axis::replicate, 1}, {Axis::shard, 4}, {Axis::tensor, 2}}));
  EXPECT_EQ(three.policy.shard_axes, Mesh::data_axes());
  EXPECT_EQ(shard::replicated(three.policy, three.mesh).shard_axes, Mesh::data_axes() | Axis::tensor);
  EXPECT_EQ(zero.mesh, Mesh({{Axis::replicate, 4}, {Axis::shard, 1}, {Axis::tensor, 2}}));
  EXPECT_EQ(shard::replicated(zero.policy, zero.mesh).replicate_axes, Mesh::data_axes() | Axis::tensor);
  EXPECT_EQ(hybrid.mesh.members(5, Axis::tensor), (std::vector<int>{4, 5}));
  EXPECT_EQ(shard::replicated(hybrid.policy, hybrid.mesh).shard_axes, Axis::shard | Axis::tensor);
  EXPECT_EQ(shard::replicated(hybrid.policy, hybrid.mesh).replicate_axes, Axis::replicate);
  EXPECT_EQ(shard::replicated(three.policy, Mesh(1, 8)), three.policy);
  for (const auto& [word, group, ranks] : {std::tuple{"3", 0, 3}, {"HYBRID_SHARD", 2, 4}}) try {
      (void)shard::with_tensor(make_strategy(word, 8, group, 4), ranks);
      ADD_FAILURE() << word;
    } catch (const Error& error) { EXPECT_THAT(error.line(), HasSubstr("ranks that share matrices do not divide")); }
}

/// Ranks that share rows follow one another, and states are sharded over them too.
TEST(Strategies, WithRanksThatShareRows) {
  const auto with = [](const char* word, int group, int ranks) {
    return shard::with_context(make_strategy(word, 8, group, 4), ranks);
  };
  const AxisSet all = Axis::replicate | Axis::shard | Axis::context;
  EXPECT_EQ(with("3", 0, 2).mesh, Mesh({{Axis::replicate, 1}, {Axis::shard, 4}, {Axis::context, 2}}));
  EXPECT_EQ(with("3", 0, 2).policy.shard_axes, all);
  EXPECT_EQ(with("0", 0, 4).mesh, Mesh({{Axis::replicate, 2}, {Axis::shard, 1}, {Axis::context, 4}}));
  EXPECT_EQ(with("0", 0, 4).policy.replicate_axes, all);
  EXPECT_EQ(with("HYBRID_SHARD", 4, 2).mesh, Mesh({{Axis::replicate, 2}, {Axis::shard, 2}, {Axis::context, 2}}));
  EXPECT_EQ(with("HYBRID_SHARD", 4, 2).policy.shard_axes, Axis::shard | Axis::context);
  EXPECT_EQ(with("HYBRID_SHARD", 4, 2).policy.replicate_axes, Axis::replicate);
  EXPECT_EQ(with("HYBRID_SHARD", 4, 2).mesh.members(5, Axis::context), (std::vector<int>{4, 5}));
  EXPECT_EQ(with("3", 0, 1).mesh, Mesh(1, 8));
  for (const auto& [word, group, ranks] : {std::tuple{"3", 0, 3}, {"0", 0, 3}, {"HYBRID_SHARD", 2, 4}}) try {
      (void)with(word, group, ranks);
      ADD_FAILURE() << word;
    } catch (const Error& error) { EXPECT_THAT(error.line(), HasSubstr("ranks that share rows do not divide")); }
}

TEST(Strategies, CanonicalWordsNameThemselves) {
  for (const Strategy& s : all_strategies(8, 4)) {
    const Strategy again = make_strategy(s.name, 8, 0, 4);
    EXPECT_EQ(again.name, s.name);
    EXPECT_EQ(again.mesh, s.mesh);
    EXPECT_EQ(again.policy, s.policy);
  }
}

std::string refusal(const char* word, int world, int group, int ranks_per_node) {
  try {
    (void)make_strategy(word, world, group, ranks_per_node);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::usage);
    return e.line();
  }
  return "accepted";
}

TEST(Strategies, Refusals) {
  EXPECT_THAT(refusal("zero4", 4, 0, 1), HasSubstr("'zero4'"));
  EXPECT_THAT(refusal("zero4", 4, 0, 1), HasSubstr("HYBRID_SHARD_ZERO2"));
  EXPECT_THAT(refusal("", 4, 0, 1), HasSubstr("no sharding strategy"));
  EXPECT_THAT(refusal("HYBRID_SHARD", 6, 4, 2), HasSubstr("1, 2, 3, 6"));
  EXPECT_THAT(refusal("HYBRID_SHARD", 6, 0, 4), HasSubstr("a shard group of 4 ranks does not divide 6 ranks"));
  EXPECT_THAT(refusal("3", 6, 5, 6), HasSubstr("does not divide"));
  EXPECT_THAT(refusal("3", 6, 12, 6), HasSubstr("does not divide"));
  EXPECT_THAT(refusal("3", 6, -2, 6), HasSubstr("does not divide"));
  EXPECT_THAT(refusal("0", 6, 3, 6), HasSubstr("ZeRO-0 shards nothing"));
  EXPECT_THAT(refusal("3", 0, 0, 1), HasSubstr("a run of 0 ranks"));
}

TEST(Strategies, SideBySide) {
  const auto names = [](const std::vector<Strategy>& all) {
    std::vector<std::string> out;
    for (const Strategy& s : all) out.push_back(s.name);
    return out;
  };
  EXPECT_THAT(names(all_strategies(8, 4)),
              testing::ElementsAre("ZeRO-0", "ZeRO-1", "ZeRO-2", "ZeRO-3", "HYBRID_SHARD", "hybrid ZeRO-2"));
  EXPECT_THAT(names(all_strategies(4, 4)), testing::ElementsAre("ZeRO-0", "ZeRO-1", "ZeRO-2", "ZeRO-3"));
  EXPECT_THAT(names(all_strategies(5, 2)), testing::ElementsAre("ZeRO-0", "ZeRO-1", "ZeRO-2", "ZeRO-3"));
}

}  // namespace
}  // namespace tessera::test
