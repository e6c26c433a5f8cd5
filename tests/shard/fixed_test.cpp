// SPDX-License-Identifier: Apache-2.0
// Schedules of inference: resident units are gathered once, before; the others in every pass; nothing is updated.

#include <gtest/gtest.h>

#include "runtime/shard/verify.hpp"
#include "tests/shard/cases.hpp"

namespace tessera::test {
namespace {

using namespace shard;

ScheduleInput fixed_input(const char* strategy) {
  ScheduleInput in = forward_input({.num_blocks = 1}, make_strategy(strategy, 4, 0, 2));
  for (UnitInput& unit : in.units) unit.trainable = false;
  return in;
}

TEST(Fixed, ResidentUnitsAreGatheredOnce) {
  const ScheduleInput in = fixed_input("2");
  EXPECT_EQ(text(build_load(in)), R"(
gather     embed       s0  on gather
gather     h.0         s1  on gather
gather     head        s2  on gather
)" + 1);
  EXPECT_EQ(text(build_forward(in, /*with_loss=*/true)), R"(
forward    embed   m0      on compute
forward    h.0     m0      on compute
forward    head    m0      on compute
norm                       on reduce   after forward head m0
)" + 1);
}

TEST(Fixed, ReleasedUnitsAreGatheredForEveryPass) {
  const ScheduleInput in = fixed_input("3");
  EXPECT_TRUE(build_load(in).list.empty());
  ScheduleInput trained = in;
  for (UnitInput& unit : trained.units) unit.trainable = true;
  EXPECT_EQ(text(build_forward(in, /*with_loss=*/true)), text(build_forward(trained, /*with_loss=*/true)));
}

TEST(Fixed, EveryScheduleOfInferenceIsSafeOnEveryStrategy) {
  for (const char* strategy : {"0", "1", "2", "3"})
    for (const bool in_place : {false, true}) {
      ScheduleInput in = fixed_input(strategy);
      in.params_in_place = in_place && in.mesh.size(Axis::shard) > 1;
      const Schedule load = build_load(in), pass = build_forward(in, /*with_loss=*/true);
      EXPECT_TRUE(verify(load, in.mesh).empty()) << strategy;
      EXPECT_TRUE(verify(pass, in.mesh, &load).empty()) << strategy;
      // Without the load, or with a unit that it leaves out, resident units are read that nobody has gathered.
      EXPECT_EQ(verify(pass, in.mesh).empty(), load.list.empty()) << strategy;
      if (load.list.empty()) continue;
      Schedule partial = load;
      partial.list.pop_back();
      ASSERT_FALSE(verify(pass, in.mesh, &partial).empty()) << strategy;
      EXPECT_EQ(verify(pass, in.mesh, &partial).front().what,
                "forward head m0 reads unit head, which has not been gathered before the first run");
    }
}

TEST(Fixed, TheVerifierKnowsWhatFixedMeans) {
  const ScheduleInput in = fixed_input("2");
  // A pass that gathers nothing reads stale parameters, where they change between passes.
  const Schedule load = build_load(in);
  Schedule pass = build_forward(in, /*with_loss=*/true);
  for (ScheduledUnit& unit : pass.units) unit.trainable = true;
  EXPECT_FALSE(verify(pass, in.mesh, &load).empty());
  // An update of a unit that is not trainable is refused.
  ScheduleInput train = in;
  for (UnitInput& unit : train.units) unit.trainable = true;
  Schedule step = build_train(train);
  EXPECT_TRUE(verify(step, train.mesh).empty());
  for (ScheduledUnit& unit : step.units) unit.trainable = false;
  EXPECT_FALSE(verify(step, train.mesh).empty());
  // A unit that is released must be gathered again.
  const ScheduleInput cut = fixed_input("3");
  Schedule lost = build_forward(cut, /*with_loss=*/true);
  const auto gather =
      std::find_if(lost.list.begin(), lost.list.end(), [](const Instruction& i) { return i.op == Op::gather; });
  ASSERT_NE(gather, lost.list.end());
  gather->op = Op::release;
  EXPECT_FALSE(verify(lost, cut.mesh).empty());
}

}  // namespace
}  // namespace tessera::test
