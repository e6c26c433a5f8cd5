// SPDX-License-Identifier: Apache-2.0
// Schedules of modules with stages: exchanges of activations as text, and what the verifier says of broken ones.

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/shard/groups.hpp"
#include "runtime/shard/happens_before.hpp"
#include "runtime/shard/verify.hpp"
#include "tests/shard/cases.hpp"

namespace tessera::test {
namespace {

using namespace shard;

ScheduleInput exchanging(Recompute recompute = Recompute::none) {
  ScheduleInput in = schedule_input({.num_blocks = 1, .tied = false}, make_strategy("1", 2, 0, 2), 1);
  in.policy.recompute = recompute;
  exchange_activations(in, Axis::shard);
  return in;
}

/// The lines of modules and exchanges, with at most two blanks in a row.
std::string exchange_lines(const Schedule& s) {
  std::string out;
  const std::string all = text(s);
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = all.find('\n', begin) + 1;
    const std::string line = all.substr(begin, end - begin);
    begin = end;
    if (line.starts_with("reduce") || line.starts_with("norm") || line.starts_with("update") ||
        line.starts_with("gather"))
      continue;
    for (const char c : line)
      if (c != ' ' || !out.ends_with("  ")) out += c;
  }
  return out;
}

Instruction& instruction(Schedule& s, const std::string& name) {
  const auto found =
      std::ranges::find_if(s.list, [&](const Instruction& in) { return instruction_name(s, in) == name; });
  if (found == s.list.end()) throw std::logic_error("no " + name);
  return *found;
}

std::string broken_exchange(const Schedule& s) {
  const auto violations = verify(s, Mesh(1, 2));
  return violations.empty() ? "safe" : violations.front().what;
}

// clang-format off
TEST(Exchanges, BetweenTheStagesOfEachPass) {
  EXPECT_EQ("\n" + exchange_lines(build_train(exchanging(Recompute::full))), R"(
forward  embed  m0  on compute  after gather embed
forward  h.0/0  m0  on compute  after gather h.0
exchange  h.0:full  m0  on exchange  all_gather over shard  after forward h.0/0 m0
forward  h.0/1  m0  on compute  after exchange h.0:full m0
exchange  h.0:scattered  m0  on exchange  reduce_scatter over shard  after forward h.0/1 m0
forward  h.0/2  m0  on compute  after exchange h.0:scattered m0
forward  head  m0  on compute
backward  head  m0  on compute  after gather head
recompute  h.0/0  m0  on compute
exchange  h.0:full  m0  on exchange  all_gather over shard  after recompute h.0/0 m0
recompute  h.0/1  m0  on compute  after exchange h.0:full m0
exchange  h.0:scattered  m0  on exchange  reduce_scatter over shard  after recompute h.0/1 m0
recompute  h.0/2  m0  on compute  after exchange h.0:scattered m0
backward  h.0/2  m0  on compute
exchange  h.0:d sum  m0  on exchange  all_gather over shard  after backward h.0/2 m0
backward  h.0/1  m0  on compute  after exchange h.0:d sum m0
exchange  h.0:d part  m0  on exchange  reduce_scatter over shard  after backward h.0/1 m0
backward  h.0/0  m0  on compute  after exchange h.0:d part m0
backward  embed  m0  on compute
)");
}
// clang-format on

TEST(Exchanges, AStageReadsWhatIsComplete) {
  Schedule s = build_train(exchanging());
  EXPECT_EQ(broken_exchange(s), "safe");
  instruction(s, "forward h.0/1 m0").after.clear();
  EXPECT_EQ(broken_exchange(s),
            "forward h.0/1 m0 is not ordered after exchange h.0:full m0, which uses a value that it reads");
}

TEST(Exchanges, AnExchangeFollowsWhatItReadsAndOverwritesNothing) {
  Schedule s = build_train(exchanging());
  instruction(s, "exchange h.0:d sum m0").after.clear();
  EXPECT_EQ(broken_exchange(s),
            "exchange h.0:d sum m0 is not ordered after backward h.0/2 m0, which uses what it exchanges");
  s = build_train(exchanging());
  ActivationSlots& slots = s.forward_slots[1];
  std::swap(slots.values[1], slots.values[4]);
  EXPECT_EQ(broken_exchange(s).substr(0, 20), "full of h.0 has slot");
}

TEST(Exchanges, EveryRankHasThemInTheOrderOfTheModules) {
  Schedule s = build_train(exchanging());
  instruction(s, "exchange h.0:full m0").part = 1;
  EXPECT_EQ(broken_exchange(s), "exchange h.0:scattered m0 comes where exchange h.0:full m0 should");
}

TEST(Exchanges, RefusesWhatIsNoExchange) {
  ScheduleInput in = exchanging();
  in.modules[1].values[2].kept = true;
  EXPECT_EQ(broken_exchange(build_train(in)), "module h.0 keeps a value that an exchange sums");
  in = exchanging();
  in.modules[1].stages.back().reads.push_back(0);
  EXPECT_EQ(broken_exchange(build_train(in)), "module h.0 has a value that not one stage reads");
  in = exchanging();
  in.modules[1].exchanges[1].axes = Axis::context;
  EXPECT_EQ(broken_exchange(build_train(in)), "module h.0 exchanges over context, on the mesh {replicate 1, shard 2}");
}

/// Two exchanges at one place, the second of what the first has made; and a copy.
ScheduleInput chained() {
  ScheduleInput in = exchanging();
  ModuleUse& module = in.modules[1];
  module.values = {{"part", false}, {"full", false}, {"sum", false}};
  module.stages = {{{}, {0}}, {{2}, {}}};
  module.exchanges = {{{0, 0, 1, ExchangeKind::all_gather, ExchangeKind::reduce_scatter}, Axis::shard},
                      {{0, 1, 2, ExchangeKind::copy, ExchangeKind::copy}, Axis::shard}};
  return in;
}

TEST(Exchanges, AtOnePlaceFollowOneAnotherBackToo) {
  const Schedule s = build_train(chained());
  EXPECT_EQ(broken_exchange(s), "safe");
  const std::string lines = exchange_lines(s);
  EXPECT_LT(lines.find("exchange  h.0:full"), lines.find("exchange  h.0:sum"));
  EXPECT_LT(lines.find("exchange  h.0:d full  m0"), lines.find("exchange  h.0:d part  m0")) << lines;
  ScheduleInput in = chained();
  std::swap(in.modules[1].exchanges[0], in.modules[1].exchanges[1]);
  EXPECT_EQ(broken_exchange(build_train(in)), "module h.0 exchanges a value that is written later");
}

TEST(Exchanges, ACopyWaitsForNobody) {
  const Mesh mesh(1, 2);
  const auto knows_peer = [&](ExchangeKind kind) {
    ScheduleInput in = chained();
    in.modules[1].exchanges[0].forward = in.modules[1].exchanges[1].forward = kind;
    const Schedule s = build_train(in);
    const HappensBefore order(s, mesh, 1);
    int forward = -1, later = -1;
    for (int i = 0; i < static_cast<int>(s.list.size()); ++i) {
      if (instruction_name(s, s.list[static_cast<std::size_t>(i)]) == "forward h.0/0 m0") forward = i;
      if (instruction_name(s, s.list[static_cast<std::size_t>(i)]) == "forward h.0/1 m0") later = i;
    }
    return order.before(forward, 1, later);
  };
  EXPECT_TRUE(knows_peer(ExchangeKind::all_reduce));
  EXPECT_FALSE(knows_peer(ExchangeKind::copy));
}

/// What has no gradient is exchanged in forward alone, and the first backward is of the stage that has read it.
TEST(Exchanges, OfConstantsHaveNoBackward) {
  ScheduleInput in = schedule_input({.num_blocks = 1, .tied = false}, make_strategy("1", 2, 0, 2), 1);
  exchange_router(in, Axis::shard);
  const Schedule s = build_train(in);
  EXPECT_EQ(broken_exchange(s), "safe");
  EXPECT_EQ(std::ranges::count(s.list, Op::exchange, &Instruction::op), 1);
  EXPECT_EQ(s.backward_slots.back().value_gradients, (std::vector<int>{-1, -1}));
  const std::string lines = exchange_lines(s);
  EXPECT_NE(lines.find("forward  head/1  m0  on compute  after exchange head:all routers m0\n"
                       "backward  head/1  m0"),
            std::string::npos)
      << lines;
  Schedule early = build_train(in);
  instruction(early, "forward head/1 m0").after.clear();
  EXPECT_EQ(broken_exchange(early),
            "forward head/1 m0 is not ordered after exchange head:all routers m0, which uses a value that it reads");
  in.modules.back().values[0].constant = false;
  EXPECT_EQ(broken_exchange(build_train(in)),
            "module head exchanges a value without a gradient into one with it, or the reverse");
}

TEST(Exchanges, OfReferenceModelsHaveAGroupToo) {
  ScheduleInput in =
      schedule_input({.num_blocks = 1, .reference = ModelShape::Reference::base}, make_strategy("1", 2, 0, 2), 1);
  exchange_activations(in, Axis::shard);
  for (ModuleUse& module : in.modules) module.exchanges.clear(), module.stages.clear(), module.values.clear();
  const Schedule s = build_train(in);
  EXPECT_GE(groups_of(s.units, in.mesh, s.modules, s.references).exchange_index_of(Axis::shard), 0);
}

TEST(Exchanges, HaveCommunicatorsOfTheirOwn) {
  const ScheduleInput in = exchanging();
  const Schedule s = build_train(in);
  const Groups groups = groups_of(s.units, in.mesh, s.modules);
  EXPECT_EQ(groups.all, (std::vector<AxisSet>{Axis::shard, Axis::shard}));
  EXPECT_EQ(groups.index_of(Axis::shard), 0);
  EXPECT_EQ(groups.exchange_index_of(Axis::shard), 1);
  EXPECT_NE(collective_hash(s), collective_hash(build_train(exchanging(Recompute::full))));
}

}  // namespace
}  // namespace tessera::test
