// Schedules of inference: resident units are gathered once, before; the others in every pass; nothing is updated.

#include <gtest/gtest.h>

#include "runtime/shard/verify.hpp"
#include "tests/shard/cases.hpp"

namespace tessera::test {
namespace {

using namespace shard;

ScheduleInput fixed_input(const char* strategy) {
  ScheduleInput in = forward_input({.num_blocks = 1}, make_strategy(strategy, 4, 0, 2));
  in.params_fixed = true;
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
  trained.params_fixed = false;
  EXPECT_EQ(text(build_forward(in, /*with_loss=*/true)), text(build_forward(trained, /*with_loss=*/true)));
}

TEST(Fixed, EveryScheduleOfInferenceIsSafeOnEveryStrategy) {
  for (const char* strategy : {"0", "1", "2", "3"})
    for (const bool in_place : {false, true}) {
      ScheduleInput in = fixed_input(strategy);
      in.params_in_place = in_place && in.mesh.size(Axis::shard) > 1;
      EXPECT_TRUE(verify(build_load(in), in.mesh).empty()) << strategy;
      EXPECT_TRUE(verify(build_forward(in, /*with_loss=*/true), in.mesh).empty()) << strategy;
    }
}

TEST(Fixed, TheVerifierKnowsWhatFixedMeans) {
  const ScheduleInput in = fixed_input("2");
  // Without params_fixed, a pass that gathers nothing reads stale parameters.
  Schedule pass = build_forward(in, /*with_loss=*/true);
  pass.params_fixed = false;
  EXPECT_FALSE(verify(pass, in.mesh).empty());
  // With params_fixed, an update is refused.
  ScheduleInput train = in;
  train.params_fixed = false;
  Schedule step = build_train(train);
  EXPECT_TRUE(verify(step, train.mesh).empty());
  step.params_fixed = true;
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
