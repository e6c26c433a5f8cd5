// SPDX-License-Identifier: Apache-2.0
// Schedules of units whose states are offloaded: as text, and what the verifier says of broken ones.

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/shard/verify.hpp"
#include "tests/shard/cases.hpp"

namespace tessera::test {
namespace {

using namespace shard;

constexpr Tier device = Tier::device, host = Tier::host, disk = Tier::disk;

ScheduleInput placed(const char* word, StatePlacement placement, int num_micro, bool on_host) {
  ScheduleInput in = schedule_input({.num_blocks = 1, .tied = false}, make_strategy(word, 2, 0, 2), num_micro);
  in.policy.placement = placement;
  in.updates_on_host = on_host;
  return in;
}

int find(const Schedule& s, const std::string& name) {
  const auto found =
      std::ranges::find_if(s.list, [&](const Instruction& in) { return instruction_name(s, in) == name; });
  EXPECT_NE(found, s.list.end()) << name;
  return static_cast<int>(found - s.list.begin());
}

/// Its text, with at most two blanks in a row.
std::string squeezed(const Schedule& s) {
  std::string out;
  for (const char c : text(s))
    if (c != ' ' || !out.ends_with("  ")) out += c;
  return out;
}

void drop(Schedule& s, int i) {
  s.list.erase(s.list.begin() + i);
  s.reads.erase(s.reads.begin() + i);
  for (Instruction& in : s.list) {
    std::erase(in.after, i);
    for (int& d : in.after) d -= d > i ? 1 : 0;
  }
}

std::string first_violation(const Schedule& s, const ScheduleInput& in) {
  const auto violations = verify(s, in.mesh);
  return violations.empty() ? "safe" : violations.front().what;
}

// Schedules as they are printed.
// clang-format off
TEST(Placed, OptimizerOnTheHost) {
  EXPECT_EQ("\n" + squeezed(build_train(placed("2", {device, host, host}, 1, true))), R"(
gather  embed  s0  on gather
gather  h.0  s1  on gather
forward  embed  m0  on compute  after gather embed
gather  head  s2  on gather
forward  h.0  m0  on compute  after gather h.0
forward  head  m0  on compute
backward  head  m0  on compute  after gather head
reduce_scatter  head  m0  g2  on reduce  a0 = x in sg0, last  after backward head m0
store  grads head  m0  sg0  on store  after reduce_scatter head m0
backward  h.0  m0  on compute
reduce_scatter  h.0  m0  g1  on reduce  a0 = x in sg1, last  after backward h.0 m0
store  grads h.0  m0  sg1  on store  after reduce_scatter h.0 m0
backward  embed  m0  on compute
reduce_scatter  embed  m0  g0  on reduce  a0 = x in sg0, last  after store grads head m0, backward embed m0
store  grads embed  m0  sg0  on store  after reduce_scatter embed m0
norm  on reduce
update  embed  on host  after store grads embed m0, norm
fetch  params embed  on fetch  after update embed
update  h.0  on host
fetch  params h.0  on fetch  after update h.0
update  head  on host
fetch  params head  on fetch  after update head
)");
}

TEST(Placed, AllOnTheHost) {
  EXPECT_EQ("\n" + squeezed(build_train(placed("3", {host, host, host}, 2, true))), R"(
fetch  params embed  m0  sp0  on fetch
gather  embed  m0  s0  on gather  from sp0  after fetch params embed m0
fetch  params h.0  m0  sp1  on fetch
gather  h.0  m0  s1  on gather  from sp1  after fetch params h.0 m0
forward  embed  m0  on compute  after gather embed m0
fetch  params head  m0  sp0  on fetch  after gather embed m0
gather  head  m0  s2  on gather  from sp0  after fetch params head m0
forward  h.0  m0  on compute  after gather h.0 m0
forward  head  m0  on compute
backward  head  m0  on compute  after gather head m0
reduce_scatter  head  m0  g2  on reduce  a0 = x in sg0  after backward head m0
store  grads head  m0  sg0  on store  after reduce_scatter head m0
backward  h.0  m0  on compute
reduce_scatter  h.0  m0  g1  on reduce  a0 = x in sg1  after backward h.0 m0
store  grads h.0  m0  sg1  on store  after reduce_scatter h.0 m0
backward  embed  m0  on compute
reduce_scatter  embed  m0  g0  on reduce  a0 = x in sg0  after store grads head m0, backward embed m0
store  grads embed  m0  sg0  on store  after reduce_scatter embed m0
forward  embed  m1  on compute
release  embed  m1  s0  on compute
forward  h.0  m1  on compute
forward  head  m1  on compute
backward  head  m1  on compute  after reduce_scatter head m0
release  head  m1  s2  on compute
fetch  grads head  m1  sg1  on fetch  after store grads h.0 m0
reduce_scatter  head  m1  g2  on reduce  a0 = x + a0 in sg1, last  after backward head m1, fetch grads head m1
store  grads head  m1  sg1  on store  after reduce_scatter head m1
backward  h.0  m1  on compute  after reduce_scatter h.0 m0
release  h.0  m1  s1  on compute
fetch  grads h.0  m1  sg0  on fetch  after store grads embed m0
reduce_scatter  h.0  m1  g1  on reduce  a0 = x + a0 in sg0, last  after backward h.0 m1, fetch grads h.0 m1
store  grads h.0  m1  sg0  on store  after reduce_scatter h.0 m1
backward  embed  m1  on compute  after reduce_scatter embed m0
fetch  grads embed  m1  sg1  on fetch  after store grads head m1
reduce_scatter  embed  m1  g0  on reduce  a0 = x + a0 in sg1, last  after backward embed m1, fetch grads embed m1
store  grads embed  m1  sg1  on store  after reduce_scatter embed m1
norm  on reduce
update  embed  on host  after store grads embed m1, norm
update  h.0  on host
update  head  on host
)");
}

TEST(Placed, OptimizerOnDisk) {
  EXPECT_EQ("\n" + squeezed(build_train(placed("3", {device, device, disk}, 1, false))), R"(
gather  embed  m0  s0  on gather
gather  h.0  m0  s1  on gather
forward  embed  m0  on compute  after gather embed m0
release  embed  m0  s0  on compute
gather  head  m0  s2  on gather
forward  h.0  m0  on compute  after gather h.0 m0
forward  head  m0  on compute
backward  head  m0  on compute  after gather head m0
release  head  m0  s2  on compute
reduce_scatter  head  m0  g2  on reduce  a0 = x, last  after backward head m0
backward  h.0  m0  on compute
release  h.0  m0  s1  on compute
reduce_scatter  h.0  m0  g1  on reduce  a0 = x, last  after backward h.0 m0
backward  embed  m0  on compute
reduce_scatter  embed  m0  g0  on reduce  a0 = x, last  after backward embed m0
fetch  optimizer embed  so0  on fetch
fetch  optimizer h.0  so1  on fetch
norm  on reduce
update  embed  on compute  in so0  after fetch optimizer embed, norm
store  optimizer embed  so0  on store  after update embed
fetch  optimizer head  so0  on fetch  after store optimizer embed
update  h.0  on compute  in so1  after fetch optimizer h.0
store  optimizer h.0  so1  on store  after update h.0
update  head  on compute  in so0  after fetch optimizer head
store  optimizer head  so0  on store  after update head
)");
}

// clang-format on

TEST(Placed, UpdatesNeedNotWaitForTheNorm) {
  ScheduleInput in = placed("2", {device, host, host}, 1, true);
  in.policy.updates_before_norm = true;
  const Schedule s = build_train(in);
  EXPECT_LT(find(s, "update head"), find(s, "backward h.0 m0"));
  EXPECT_GT(find(s, "fetch params head"), find(s, "norm"));
  EXPECT_EQ(first_violation(s, in), "safe");
  // Where there is clipping, they do.
  Schedule clips = s;
  clips.updates_before_norm = false;
  EXPECT_EQ(first_violation(clips, in), "update head comes before norm");
}

TEST(Placed, AFetchThatComesTooLate) {
  const ScheduleInput in = placed("3", {host, host, host}, 2, true);
  Schedule s = build_train(in);
  s.list[static_cast<std::size_t>(find(s, "gather h.0 m0"))].after.clear();
  EXPECT_EQ(first_violation(s, in),
            "gather h.0 m0 is not ordered after fetch params h.0 m0, which uses its staging slot");
  s = build_train(in);
  drop(s, find(s, "fetch grads h.0 m1"));
  EXPECT_EQ(first_violation(s, in),
            "reduce_scatter h.0 m1 is not ordered after store grads embed m0, which uses its staging slot");
}

TEST(Placed, AStoreThatIsDropped) {
  const ScheduleInput in = placed("3", {device, device, disk}, 1, false);
  Schedule s = build_train(in);
  drop(s, find(s, "store optimizer embed"));
  EXPECT_EQ(first_violation(s, in), "fetch optimizer head takes the staging slot of embed, which is not stored");
  const ScheduleInput offloaded = placed("2", {device, host, host}, 1, true);
  s = build_train(offloaded);
  drop(s, find(s, "fetch params embed"));
  EXPECT_EQ(first_violation(s, offloaded),
            "end of the step: the params on the device of embed are not those of its update");
}

TEST(Placed, AStagingSlotThatIsReusedEarly) {
  ScheduleInput in = placed("3", {device, device, disk}, 1, false);
  in.policy.staging_slots = 1;
  Schedule s = build_train(in);
  s.list[static_cast<std::size_t>(find(s, "fetch optimizer h.0"))].after.clear();
  EXPECT_EQ(first_violation(s, in),
            "fetch optimizer h.0 is not ordered after update embed, which uses its staging slot");
}

}  // namespace
}  // namespace tessera::test
