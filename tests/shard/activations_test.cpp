// SPDX-License-Identifier: Apache-2.0
// Schedules with offloaded activations: as text, and what the verifier says of broken ones.

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/shard/verify.hpp"
#include "tests/shard/cases.hpp"

namespace tessera::test {
namespace {

using namespace shard;

ScheduleInput offloaded(Recompute recompute, int num_blocks, int staging_slots = 2) {
  ScheduleInput in = schedule_input({.num_blocks = num_blocks, .tied = false}, make_strategy("0", 1, 0, 1), 1);
  in.policy.recompute = recompute;
  in.policy.staging_slots = staging_slots;
  offload_activations(in);
  return in;
}

/// Its modules, fetches and stores, with at most two blanks in a row.
std::string lines_of(const Schedule& s) {
  std::string out;
  const std::string all = text(s);
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = all.find('\n', begin) + 1;
    const std::string line = all.substr(begin, end - begin);
    begin = end;
    if (line.starts_with("reduce") || line.starts_with("norm") || line.starts_with("update")) continue;
    for (const char c : line)
      if (c != ' ' || !out.ends_with("  ")) out += c;
  }
  return out;
}

int index_of(const Schedule& s, const std::string& name) {
  const auto found =
      std::ranges::find_if(s.list, [&](const Instruction& in) { return instruction_name(s, in) == name; });
  EXPECT_NE(found, s.list.end()) << name;
  return static_cast<int>(found - s.list.begin());
}

std::string violation(const Schedule& s) {
  const auto violations = verify(s, Mesh(1, 1));
  return violations.empty() ? "safe" : violations.front().what;
}

// clang-format off
TEST(OffloadedActivations, CheckpointsOfFullRecompute) {
  EXPECT_EQ("\n" + lines_of(build_train(offloaded(Recompute::full, 4))), R"(
forward  embed  m0  on compute  to si0
forward  h.0  m0  on compute  in si0 to si1
store  input h.0  m0  si0  on store  after forward h.0 m0
forward  h.1  m0  on compute  in si1 to si2
store  input h.1  m0  si1  on store  after forward h.1 m0
forward  h.2  m0  on compute  in si2 to si0  after store input h.0 m0
forward  h.3  m0  on compute  in si0 to si1  after store input h.1 m0
forward  head  m0  on compute  in si1
backward  head  m0  on compute  in si1
recompute  h.3  m0  on compute  in si0
backward  h.3  m0  on compute  in si0
fetch  input h.1  m0  si1  on fetch  after backward h.3 m0
recompute  h.2  m0  on compute  in si2
backward  h.2  m0  on compute  in si2
fetch  input h.0  m0  si0  on fetch  after backward h.2 m0
recompute  h.1  m0  on compute  in si1  after fetch input h.1 m0
backward  h.1  m0  on compute  in si1
recompute  h.0  m0  on compute  in si0  after fetch input h.0 m0
backward  h.0  m0  on compute  in si0
backward  embed  m0  on compute
)");
}

TEST(OffloadedActivations, WhatForwardSaves) {
  EXPECT_EQ("\n" + lines_of(build_train(offloaded(Recompute::none, 4))), R"(
forward  embed  m0  on compute  to si0
forward  h.0  m0  on compute  in si0 ss0 to si1
store  input h.0  m0  si0  on store  after forward h.0 m0
store  saved h.0  m0  ss0  on store
forward  h.1  m0  on compute  in si1 ss1 to si2
store  input h.1  m0  si1  on store  after forward h.1 m0
store  saved h.1  m0  ss1  on store
forward  h.2  m0  on compute  in si2 ss0 to si0  after store saved h.0 m0
forward  h.3  m0  on compute  in si0 ss1 to si1  after store saved h.1 m0
forward  head  m0  on compute  in si1
backward  head  m0  on compute  in si1
fetch  input h.1  m0  si1  on fetch  after backward head m0
backward  h.3  m0  on compute  in si0 ss1
fetch  input h.0  m0  si0  on fetch  after backward h.3 m0
fetch  saved h.1  m0  ss1  on fetch
backward  h.2  m0  on compute  in si2 ss0
fetch  saved h.0  m0  ss0  on fetch  after backward h.2 m0
backward  h.1  m0  on compute  in si1 ss1  after fetch saved h.1 m0
backward  h.0  m0  on compute  in si0 ss0  after fetch saved h.0 m0
backward  embed  m0  on compute
)");
}
// clang-format on

TEST(OffloadedActivations, AFetchThatComesTooLate) {
  Schedule s = build_train(offloaded(Recompute::full, 4));
  EXPECT_EQ(violation(s), "safe");
  s.list[static_cast<std::size_t>(index_of(s, "recompute h.0 m0"))].after.clear();
  EXPECT_EQ(violation(s), "recompute h.0 m0 is not ordered after fetch input h.0 m0, which uses its input");
}

TEST(OffloadedActivations, AStoreThatIsDropped) {
  Schedule s = build_train(offloaded(Recompute::full, 4));
  const int store = index_of(s, "store input h.0 m0");
  s.list.erase(s.list.begin() + store);
  s.reads.erase(s.reads.begin() + store);
  for (Instruction& in : s.list) {
    std::erase(in.after, store);
    for (int& d : in.after) d -= d > store ? 1 : 0;
  }
  EXPECT_EQ(violation(s), "forward h.2 m0 takes the slot of h.0 m0, which is not stored");
}

TEST(OffloadedActivations, ASlotThatIsReusedEarly) {
  Schedule s = build_train(offloaded(Recompute::none, 4));
  EXPECT_EQ(violation(s), "safe");
  const auto forward = static_cast<std::size_t>(index_of(s, "forward h.2 m0"));
  s.list[forward].after.clear();
  EXPECT_EQ(violation(s), "forward h.2 m0 is not ordered after store input h.0 m0, which uses the slot of its output");
  // Waiting for one of the two stores is not enough.
  s.list[forward].after = {index_of(s, "store input h.0 m0")};
  EXPECT_EQ(violation(s),
            "forward h.2 m0 is not ordered after store saved h.0 m0, which uses the slot of what it saves");
}

TEST(OffloadedActivations, AnOutputInThePlaceOfTheInput) {
  ScheduleInput in = schedule_input({.num_blocks = 4, .tied = false, .frozen_embed = true, .frozen_blocks = 2},
                                    make_strategy("0", 1, 0, 1), 1);
  offload_activations(in);
  Schedule s = build_train(in);
  EXPECT_EQ(violation(s), "safe");
  s.forward_slots[2].input = s.forward_slots[1].input;  // of blocks that have no backward
  EXPECT_EQ(violation(s), "forward h.0 m0 takes the slot of h.0 m0, which is not stored");
}

}  // namespace
}  // namespace tessera::test
