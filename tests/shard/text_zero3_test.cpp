// SPDX-License-Identifier: Apache-2.0
// Schedules of sharded parameters, as text.

#include <gtest/gtest.h>

#include "tests/shard/cases.hpp"

namespace tessera::test {
namespace {

using namespace shard;

TEST(Text, Zero3) {
  ScheduleInput in = schedule_input({.num_blocks = 3}, make_strategy("3", 4, 0, 2), 1);
  EXPECT_EQ(text(build_train(in)), R"(
gather          embed   m0  s0  on gather
gather          h.0     m0  s1  on gather
forward         embed   m0      on compute                after gather embed m0
gather          h.1     m0  s2  on gather
forward         h.0     m0      on compute                after gather h.0 m0
release         h.0     m0  s1  on compute
gather          h.2     m0  s1  on gather                 after release h.0 m0
forward         h.1     m0      on compute                after gather h.1 m0
gather          head    m0  s3  on gather
forward         h.2     m0      on compute                after gather h.2 m0
forward         head    m0      on compute
backward        head    m0      on compute                after gather head m0
release         embed   m0  s0  on compute
release         head    m0  s3  on compute
reduce_scatter  head    m0  g3  on reduce   a0 = x, last  after backward head m0
backward        h.2     m0      on compute
release         h.2     m0  s1  on compute
gather          h.0     m0  s1  on gather                 after release h.2 m0
reduce_scatter  h.2     m0  g1  on reduce   a0 = x, last  after backward h.2 m0
backward        h.1     m0      on compute
release         h.1     m0  s2  on compute
reduce_scatter  h.1     m0  g2  on reduce   a0 = x, last  after backward h.1 m0
backward        h.0     m0      on compute                after gather h.0 m0, reduce_scatter h.2 m0
release         h.0     m0  s1  on compute
reduce_scatter  h.0     m0  g1  on reduce   a0 = x, last  after backward h.0 m0
backward        embed   m0      on compute
reduce_scatter  embed   m0  g0  on reduce   a0 = x, last  after backward embed m0
norm                            on reduce
update          embed           on compute                after norm
update          h.0             on compute
update          h.1             on compute
update          h.2             on compute
update          head            on compute
)" + 1);
}

TEST(Text, Zero3WithoutPrefetch) {
  ScheduleInput in = schedule_input({.num_blocks = 3}, make_strategy("3", 4, 0, 2), 1);
  in.policy.forward_prefetch = in.policy.backward_prefetch = 0;
  EXPECT_EQ(text(build_train(in)), R"(
gather          embed   m0  s0  on gather
forward         embed   m0      on compute                after gather embed m0
gather          h.0     m0  s1  on gather
forward         h.0     m0      on compute                after gather h.0 m0
release         h.0     m0  s1  on compute
gather          h.1     m0  s1  on gather                 after release h.0 m0
forward         h.1     m0      on compute                after gather h.1 m0
release         h.1     m0  s1  on compute
gather          h.2     m0  s1  on gather                 after release h.1 m0
forward         h.2     m0      on compute                after gather h.2 m0
forward         head    m0      on compute
gather          head    m0  s2  on gather
backward        head    m0      on compute                after gather head m0
release         embed   m0  s0  on compute
release         head    m0  s2  on compute
reduce_scatter  head    m0  g3  on reduce   a0 = x, last  after backward head m0
backward        h.2     m0      on compute
release         h.2     m0  s1  on compute
gather          h.1     m0  s1  on gather                 after release h.2 m0
reduce_scatter  h.2     m0  g1  on reduce   a0 = x, last  after backward h.2 m0
backward        h.1     m0      on compute                after gather h.1 m0
release         h.1     m0  s1  on compute
gather          h.0     m0  s1  on gather                 after release h.1 m0
reduce_scatter  h.1     m0  g2  on reduce   a0 = x, last  after backward h.1 m0
backward        h.0     m0      on compute                after reduce_scatter h.2 m0, gather h.0 m0
release         h.0     m0  s1  on compute
reduce_scatter  h.0     m0  g1  on reduce   a0 = x, last  after backward h.0 m0
backward        embed   m0      on compute
reduce_scatter  embed   m0  g0  on reduce   a0 = x, last  after backward embed m0
norm                            on reduce
update          embed           on compute                after norm
update          h.0             on compute
update          h.1             on compute
update          h.2             on compute
update          head            on compute
)" + 1);
}

TEST(Text, Zero3TwoAhead) {
  ScheduleInput in = schedule_input({.num_blocks = 4}, make_strategy("3", 4, 0, 2), 1);
  in.policy.forward_prefetch = in.policy.backward_prefetch = 2;
  EXPECT_EQ(text(build_train(in)), R"(
gather          embed   m0  s0  on gather
gather          h.0     m0  s1  on gather
gather          h.1     m0  s2  on gather
forward         embed   m0      on compute                after gather embed m0
gather          h.2     m0  s3  on gather
forward         h.0     m0      on compute                after gather h.0 m0
release         h.0     m0  s1  on compute
gather          h.3     m0  s1  on gather                 after release h.0 m0
forward         h.1     m0      on compute                after gather h.1 m0
gather          head    m0  s4  on gather
forward         h.2     m0      on compute                after gather h.2 m0
forward         h.3     m0      on compute                after gather h.3 m0
forward         head    m0      on compute
backward        head    m0      on compute                after gather head m0
release         embed   m0  s0  on compute
release         head    m0  s4  on compute
reduce_scatter  head    m0  g3  on reduce   a0 = x, last  after backward head m0
backward        h.3     m0      on compute
release         h.3     m0  s1  on compute
gather          h.0     m0  s1  on gather                 after release h.3 m0
reduce_scatter  h.3     m0  g1  on reduce   a0 = x, last  after backward h.3 m0
backward        h.2     m0      on compute
release         h.2     m0  s3  on compute
reduce_scatter  h.2     m0  g2  on reduce   a0 = x, last  after backward h.2 m0
backward        h.1     m0      on compute                after reduce_scatter h.3 m0
release         h.1     m0  s2  on compute
reduce_scatter  h.1     m0  g1  on reduce   a0 = x, last  after backward h.1 m0
backward        h.0     m0      on compute                after gather h.0 m0, reduce_scatter h.2 m0
release         h.0     m0  s1  on compute
reduce_scatter  h.0     m0  g2  on reduce   a0 = x, last  after backward h.0 m0
backward        embed   m0      on compute
reduce_scatter  embed   m0  g0  on reduce   a0 = x, last  after backward embed m0
norm                            on reduce
update          embed           on compute                after norm
update          h.0             on compute
update          h.1             on compute
update          h.2             on compute
update          h.3             on compute
update          head            on compute
)" + 1);
}

TEST(Text, Zero3TwoMicroBatches) {
  ScheduleInput in = schedule_input({.num_blocks = 3}, make_strategy("3", 4, 0, 2), 2);
  EXPECT_EQ(text(build_train(in)), R"(
gather          embed   m0  s0  on gather
gather          h.0     m0  s1  on gather
forward         embed   m0      on compute                     after gather embed m0
gather          h.1     m0  s2  on gather
forward         h.0     m0      on compute                     after gather h.0 m0
release         h.0     m0  s1  on compute
gather          h.2     m0  s1  on gather                      after release h.0 m0
forward         h.1     m0      on compute                     after gather h.1 m0
gather          head    m0  s3  on gather
forward         h.2     m0      on compute                     after gather h.2 m0
forward         head    m0      on compute
backward        head    m0      on compute                     after gather head m0
reduce_scatter  head    m0  g3  on reduce   a0 = x             after backward head m0
backward        h.2     m0      on compute
release         h.2     m0  s1  on compute
gather          h.0     m0  s1  on gather                      after release h.2 m0
reduce_scatter  h.2     m0  g1  on reduce   a0 = x             after backward h.2 m0
backward        h.1     m0      on compute
reduce_scatter  h.1     m0  g2  on reduce   a0 = x             after backward h.1 m0
backward        h.0     m0      on compute                     after gather h.0 m0, reduce_scatter h.2 m0
reduce_scatter  h.0     m0  g1  on reduce   a0 = x             after backward h.0 m0
backward        embed   m0      on compute
reduce_scatter  embed   m0  g0  on reduce   a0 = x             after backward embed m0
forward         embed   m1      on compute
forward         h.0     m1      on compute
release         h.0     m1  s1  on compute
gather          h.2     m1  s1  on gather                      after release h.0 m1
forward         h.1     m1      on compute
forward         h.2     m1      on compute                     after gather h.2 m1
forward         head    m1      on compute
backward        head    m1      on compute                     after reduce_scatter embed m0
release         embed   m1  s0  on compute
release         head    m1  s3  on compute
reduce_scatter  head    m1  g3  on reduce   a0 = x + a0, last  after backward head m1
backward        h.2     m1      on compute
release         h.2     m1  s1  on compute
gather          h.0     m1  s1  on gather                      after release h.2 m1
reduce_scatter  h.2     m1  g2  on reduce   a0 = x + a0, last  after backward h.2 m1
backward        h.1     m1      on compute
release         h.1     m1  s2  on compute
reduce_scatter  h.1     m1  g1  on reduce   a0 = x + a0, last  after backward h.1 m1
backward        h.0     m1      on compute                     after gather h.0 m1, reduce_scatter h.2 m1
release         h.0     m1  s1  on compute
reduce_scatter  h.0     m1  g2  on reduce   a0 = x + a0, last  after backward h.0 m1
backward        embed   m1      on compute
reduce_scatter  embed   m1  g0  on reduce   a0 = x + a0, last  after backward embed m1
norm                            on reduce
update          embed           on compute                     after norm
update          h.0             on compute
update          h.1             on compute
update          h.2             on compute
update          head            on compute
)" + 1);
}

TEST(Text, Zero3NotResharded) {
  ScheduleInput in = schedule_input({.num_blocks = 2}, make_strategy("3", 4, 0, 2), 1);
  in.policy.reshard_after_forward = false;
  EXPECT_EQ(text(build_train(in)), R"(
gather          embed       s0  on gather
gather          h.0         s1  on gather
forward         embed   m0      on compute                after gather embed
gather          h.1         s2  on gather
forward         h.0     m0      on compute                after gather h.0
gather          head        s3  on gather
forward         h.1     m0      on compute                after gather h.1
forward         head    m0      on compute
backward        head    m0      on compute                after gather head
reduce_scatter  head    m0  g3  on reduce   a0 = x, last  after backward head m0
backward        h.1     m0      on compute
reduce_scatter  h.1     m0  g1  on reduce   a0 = x, last  after backward h.1 m0
backward        h.0     m0      on compute
reduce_scatter  h.0     m0  g2  on reduce   a0 = x, last  after backward h.0 m0
backward        embed   m0      on compute
reduce_scatter  embed   m0  g0  on reduce   a0 = x, last  after backward embed m0
norm                            on reduce
update          embed           on compute                after norm
update          h.0             on compute
update          h.1             on compute
update          head            on compute
)" + 1);
}

TEST(Text, Zero3InPlace) {
  ScheduleInput in = schedule_input({.num_blocks = 2}, make_strategy("3", 2, 0, 2), 1);
  in.params_in_place = true;
  EXPECT_EQ(text(build_train(in)), R"(
gather          embed       s0  on gather
gather          h.0         s1  on gather
forward         embed   m0      on compute                after gather embed
gather          h.1         s2  on gather
forward         h.0     m0      on compute                after gather h.0
gather          head        s3  on gather
forward         h.1     m0      on compute                after gather h.1
forward         head    m0      on compute
backward        head    m0      on compute                after gather head
reduce_scatter  head    m0  g3  on reduce   a0 = x, last  after backward head m0
backward        h.1     m0      on compute
reduce_scatter  h.1     m0  g1  on reduce   a0 = x, last  after backward h.1 m0
backward        h.0     m0      on compute
reduce_scatter  h.0     m0  g2  on reduce   a0 = x, last  after backward h.0 m0
backward        embed   m0      on compute
reduce_scatter  embed   m0  g0  on reduce   a0 = x, last  after backward embed m0
norm                            on reduce
update          embed           on compute                after norm
update          h.0             on compute
update          h.1             on compute
update          head            on compute
)" + 1);
}

TEST(Text, Zero3OwnHead) {
  ScheduleInput in = schedule_input({.num_blocks = 2, .tied = false, .head = 4800}, make_strategy("3", 4, 0, 2), 1);
  EXPECT_EQ(text(build_train(in)), R"(
gather          embed   m0  s0  on gather
gather          h.0     m0  s1  on gather
forward         embed   m0      on compute                after gather embed m0
release         embed   m0  s0  on compute
gather          h.1     m0  s2  on gather
forward         h.0     m0      on compute                after gather h.0 m0
gather          head    m0  s0  on gather                 after release embed m0
forward         h.1     m0      on compute                after gather h.1 m0
forward         head    m0      on compute
backward        head    m0      on compute                after gather head m0
release         head    m0  s0  on compute
reduce_scatter  head    m0  g0  on reduce   a0 = x, last  after backward head m0
backward        h.1     m0      on compute
release         h.1     m0  s2  on compute
reduce_scatter  h.1     m0  g1  on reduce   a0 = x, last  after backward h.1 m0
backward        h.0     m0      on compute
release         h.0     m0  s1  on compute
reduce_scatter  h.0     m0  g2  on reduce   a0 = x, last  after backward h.0 m0
backward        embed   m0      on compute                after reduce_scatter head m0
reduce_scatter  embed   m0  g0  on reduce   a0 = x, last  after backward embed m0
norm                            on reduce
update          embed           on compute                after norm
update          h.0             on compute
update          h.1             on compute
update          head            on compute
)" + 1);
}

TEST(Text, Zero3Recompute) {
  ScheduleInput in = schedule_input({.num_blocks = 3}, make_strategy("3", 4, 0, 2), 1);
  in.policy.recompute = Recompute::full;
  EXPECT_EQ(text(build_train(in)), R"(
gather          embed   m0  s0  on gather
gather          h.0     m0  s1  on gather
forward         embed   m0      on compute                after gather embed m0
gather          h.1     m0  s2  on gather
forward         h.0     m0      on compute                after gather h.0 m0
release         h.0     m0  s1  on compute
gather          h.2     m0  s1  on gather                 after release h.0 m0
forward         h.1     m0      on compute                after gather h.1 m0
gather          head    m0  s3  on gather
forward         h.2     m0      on compute                after gather h.2 m0
forward         head    m0      on compute
backward        head    m0      on compute                after gather head m0
release         embed   m0  s0  on compute
release         head    m0  s3  on compute
reduce_scatter  head    m0  g3  on reduce   a0 = x, last  after backward head m0
recompute       h.2     m0      on compute
backward        h.2     m0      on compute
release         h.2     m0  s1  on compute
gather          h.0     m0  s1  on gather                 after release h.2 m0
reduce_scatter  h.2     m0  g1  on reduce   a0 = x, last  after backward h.2 m0
recompute       h.1     m0      on compute
backward        h.1     m0      on compute
release         h.1     m0  s2  on compute
reduce_scatter  h.1     m0  g2  on reduce   a0 = x, last  after backward h.1 m0
recompute       h.0     m0      on compute                after gather h.0 m0
backward        h.0     m0      on compute                after reduce_scatter h.2 m0
release         h.0     m0  s1  on compute
reduce_scatter  h.0     m0  g1  on reduce   a0 = x, last  after backward h.0 m0
backward        embed   m0      on compute
reduce_scatter  embed   m0  g0  on reduce   a0 = x, last  after backward embed m0
norm                            on reduce
update          embed           on compute                after norm
update          h.0             on compute
update          h.1             on compute
update          h.2             on compute
update          head            on compute
)" + 1);
}

TEST(Text, HybridShard) {
  ScheduleInput in = schedule_input({.num_blocks = 3}, make_strategy("HYBRID_SHARD", 4, 0, 2), 1);
  EXPECT_EQ(text(build_train(in)), R"(
gather          embed   m0  s0  on gather
gather          h.0     m0  s1  on gather
forward         embed   m0      on compute                  after gather embed m0
gather          h.1     m0  s2  on gather
forward         h.0     m0      on compute                  after gather h.0 m0
release         h.0     m0  s1  on compute
gather          h.2     m0  s1  on gather                   after release h.0 m0
forward         h.1     m0      on compute                  after gather h.1 m0
gather          head    m0  s3  on gather
forward         h.2     m0      on compute                  after gather h.2 m0
forward         head    m0      on compute
backward        head    m0      on compute                  after gather head m0
release         embed   m0  s0  on compute
release         head    m0  s3  on compute
reduce_scatter  head    m0  g3  on reduce     a0 = x        after backward head m0
all_reduce      head    m0      on replicate  a0 = x, last  after reduce_scatter head m0
backward        h.2     m0      on compute
release         h.2     m0  s1  on compute
gather          h.0     m0  s1  on gather                   after release h.2 m0
reduce_scatter  h.2     m0  g1  on reduce     a0 = x        after backward h.2 m0
all_reduce      h.2     m0      on replicate  a0 = x, last  after reduce_scatter h.2 m0
backward        h.1     m0      on compute
release         h.1     m0  s2  on compute
reduce_scatter  h.1     m0  g2  on reduce     a0 = x        after backward h.1 m0
all_reduce      h.1     m0      on replicate  a0 = x, last  after reduce_scatter h.1 m0
backward        h.0     m0      on compute                  after gather h.0 m0, reduce_scatter h.2 m0
release         h.0     m0  s1  on compute
reduce_scatter  h.0     m0  g1  on reduce     a0 = x        after backward h.0 m0
all_reduce      h.0     m0      on replicate  a0 = x, last  after reduce_scatter h.0 m0
backward        embed   m0      on compute
reduce_scatter  embed   m0  g0  on reduce     a0 = x        after backward embed m0
all_reduce      embed   m0      on replicate  a0 = x, last  after reduce_scatter embed m0
norm                            on reduce                   after all_reduce embed m0
update          embed           on compute                  after norm
update          h.0             on compute
update          h.1             on compute
update          h.2             on compute
update          head            on compute
)" + 1);
}

}  // namespace
}  // namespace tessera::test
