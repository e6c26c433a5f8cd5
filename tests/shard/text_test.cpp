// SPDX-License-Identifier: Apache-2.0
// Schedules of unsharded parameters, as text.

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/shard/cases.hpp"

namespace tessera::test {
namespace {

using namespace shard;

TEST(Text, Zero2ThreeUnitsTwoMicroBatches) {
  ScheduleInput in = schedule_input({.num_blocks = 1}, make_strategy("2", 4, 0, 2), 2);
  EXPECT_EQ(text(build_train(in)), R"(
gather          embed       s0  on gather
gather          h.0         s1  on gather
forward         embed   m0      on compute                     after gather embed
gather          head        s2  on gather
forward         h.0     m0      on compute                     after gather h.0
forward         head    m0      on compute
backward        head    m0      on compute                     after gather head
reduce_scatter  head    m0  g2  on reduce   a0 = x             after backward head m0
backward        h.0     m0      on compute
reduce_scatter  h.0     m0  g1  on reduce   a0 = x             after backward h.0 m0
backward        embed   m0      on compute
reduce_scatter  embed   m0  g0  on reduce   a0 = x             after backward embed m0
forward         embed   m1      on compute
forward         h.0     m1      on compute
forward         head    m1      on compute
backward        head    m1      on compute                     after reduce_scatter embed m0
reduce_scatter  head    m1  g2  on reduce   a0 = x + a0, last  after backward head m1
backward        h.0     m1      on compute
reduce_scatter  h.0     m1  g1  on reduce   a0 = x + a0, last  after backward h.0 m1
backward        embed   m1      on compute
reduce_scatter  embed   m1  g0  on reduce   a0 = x + a0, last  after backward embed m1
norm                            on reduce
update          embed           on compute                     after norm
update          h.0             on compute
update          head            on compute
)" + 1);
}

TEST(Text, AReferenceModelRunsBeforeTheModel) {
  const ModelShape base{.num_blocks = 1,
                        .adapters = true,
                        .frozen_embed = true,
                        .frozen_blocks = 1,
                        .reference = ModelShape::Reference::base},
      own{.num_blocks = 1, .reference = ModelShape::Reference::own};
  EXPECT_EQ(text(build_train(schedule_input(base, make_strategy("3", 2, 0, 2), 1))), R"(
gather          embed            m0  s0  on gather
gather          h.0              m0  s1  on gather
forward         reference:embed  m0      on compute                after gather embed m0
gather          head             m0  s2  on gather
forward         reference:h.0    m0      on compute                after gather h.0 m0
gather          adapters         m0  s3  on gather
forward         reference:head   m0      on compute                after gather head m0
forward         embed            m0      on compute
forward         h.0              m0      on compute                after gather adapters m0
forward         head             m0      on compute
backward        head             m0      on compute
release         embed            m0  s0  on compute
release         head             m0  s2  on compute
reduce_scatter  head             m0  g0  on reduce   a0 = x, last  after backward head m0
backward        h.0              m0      on compute
release         h.0              m0  s1  on compute
release         adapters         m0  s3  on compute
reduce_scatter  adapters         m0  g1  on reduce   a0 = x, last  after backward h.0 m0
norm                                     on reduce
update          head                     on compute                after norm
update          adapters                 on compute
)" + 1);
  EXPECT_EQ(text(build_forward(forward_input(own, make_strategy("2", 2, 0, 2)), /*with_loss=*/true)), R"(
gather     embed                s0  on gather
forward    reference:embed  m0      on compute
forward    reference:h.0    m0      on compute
forward    reference:head   m0      on compute
gather     h.0                  s1  on gather
forward    embed            m0      on compute  after gather embed
gather     head                 s2  on gather
forward    h.0              m0      on compute  after gather h.0
forward    head             m0      on compute  after gather head
norm                                on reduce   after forward head m0
)" + 1);
  ScheduleInput in = schedule_input(own, make_strategy("2", 2, 0, 2), 1);
  in.references[0].modules[1].grad_units = {1};
  EXPECT_THROW((void)build_train(in), std::logic_error);
  in.references[0].modules[1].grad_units = {};
  in.references[0].modules[1].forward_units = {99};
  EXPECT_THROW((void)build_train(in), std::logic_error);
}

TEST(Text, Zero0) {
  ScheduleInput in = schedule_input({.num_blocks = 1}, make_strategy("0", 2, 0, 2), 2);
  EXPECT_EQ(text(build_train(in)), R"(
forward     embed   m0      on compute
forward     h.0     m0      on compute
forward     head    m0      on compute
backward    head    m0      on compute
all_reduce  head    m0  g2  on reduce   a0 = x             after backward head m0
backward    h.0     m0      on compute
all_reduce  h.0     m0  g1  on reduce   a0 = x             after backward h.0 m0
backward    embed   m0      on compute
all_reduce  embed   m0  g0  on reduce   a0 = x             after backward embed m0
forward     embed   m1      on compute
forward     h.0     m1      on compute
forward     head    m1      on compute
backward    head    m1      on compute                     after all_reduce embed m0
all_reduce  head    m1  g2  on reduce   a0 = x + a0, last  after backward head m1
backward    h.0     m1      on compute
all_reduce  h.0     m1  g1  on reduce   a0 = x + a0, last  after backward h.0 m1
backward    embed   m1      on compute
all_reduce  embed   m1  g0  on reduce   a0 = x + a0, last  after backward embed m1
norm                        on reduce
update      embed           on compute                     after norm
update      h.0             on compute
update      head            on compute
)" + 1);
}

TEST(Text, Zero0AccumulatesBf16GradientsInFp32) {
  // bf16 gradients are no place for their sum: they have shared slots, and an fp32 accumulator.
  ScheduleInput in = schedule_input({.num_blocks = 1}, make_strategy("0", 2, 0, 2), 1);
  in.policy.param_dtype = in.policy.reduce_dtype = DType::bf16;
  const Schedule schedule = build_train(in);
  EXPECT_EQ(text(schedule), R"(
forward     embed   m0      on compute
forward     h.0     m0      on compute
forward     head    m0      on compute
backward    head    m0      on compute
all_reduce  head    m0  g2  on reduce   a0 = x, last  after backward head m0
backward    h.0     m0      on compute
all_reduce  h.0     m0  g1  on reduce   a0 = x, last  after backward h.0 m0
backward    embed   m0      on compute
all_reduce  embed   m0  g0  on reduce   a0 = x, last  after backward embed m0
norm                        on reduce
update      embed           on compute                after norm
update      h.0             on compute
update      head            on compute
)" + 1);
  EXPECT_FALSE(schedule.units.front().grads_resident);
  EXPECT_EQ(schedule.units.front().num_accumulators, 1);
}

TEST(Text, Zero1) {
  ScheduleInput in = schedule_input({.num_blocks = 1}, make_strategy("1", 4, 0, 2), 2);
  EXPECT_EQ(text(build_train(in)), R"(
gather          embed       s0  on gather
gather          h.0         s1  on gather
forward         embed   m0      on compute                     after gather embed
gather          head        s2  on gather
forward         h.0     m0      on compute                     after gather h.0
forward         head    m0      on compute
backward        head    m0      on compute                     after gather head
reduce_scatter  head    m0  g2  on reduce   a0 = x             after backward head m0
backward        h.0     m0      on compute
reduce_scatter  h.0     m0  g1  on reduce   a0 = x             after backward h.0 m0
backward        embed   m0      on compute
reduce_scatter  embed   m0  g0  on reduce   a0 = x             after backward embed m0
forward         embed   m1      on compute
forward         h.0     m1      on compute
forward         head    m1      on compute
backward        head    m1      on compute                     after reduce_scatter embed m0
reduce_scatter  head    m1  g2  on reduce   a0 = x + a0, last  after backward head m1
backward        h.0     m1      on compute
reduce_scatter  h.0     m1  g1  on reduce   a0 = x + a0, last  after backward h.0 m1
backward        embed   m1      on compute
reduce_scatter  embed   m1  g0  on reduce   a0 = x + a0, last  after backward embed m1
norm                            on reduce
update          embed           on compute                     after norm
update          h.0             on compute
update          head            on compute
)" + 1);
}

TEST(Text, Zero2ReduceLast) {
  ScheduleInput in = schedule_input({.num_blocks = 1}, make_strategy("2", 4, 0, 2), 2);
  in.policy.reduce = Reduce::last;
  EXPECT_EQ(text(build_train(in)), R"(
gather          embed       s0  on gather
gather          h.0         s1  on gather
forward         embed   m0      on compute        after gather embed
gather          head        s2  on gather
forward         h.0     m0      on compute        after gather h.0
forward         head    m0      on compute
backward        head    m0      on compute        after gather head
backward        h.0     m0      on compute
backward        embed   m0      on compute
forward         embed   m1      on compute
forward         h.0     m1      on compute
forward         head    m1      on compute
backward        head    m1      on compute  adds
reduce_scatter  head    m1  g2  on reduce   last  after backward head m1
backward        h.0     m1      on compute  adds
reduce_scatter  h.0     m1  g1  on reduce   last  after backward h.0 m1
backward        embed   m1      on compute  adds
reduce_scatter  embed   m1  g0  on reduce   last  after backward embed m1
norm                            on reduce
update          embed           on compute        after norm
update          h.0             on compute
update          head            on compute
)" + 1);
}

TEST(Text, Zero0ReduceLast) {
  ScheduleInput in = schedule_input({.num_blocks = 1}, make_strategy("0", 2, 0, 2), 2);
  in.policy.reduce = Reduce::last;
  EXPECT_EQ(text(build_train(in)), R"(
forward     embed   m0      on compute
forward     h.0     m0      on compute
forward     head    m0      on compute
backward    head    m0      on compute
backward    h.0     m0      on compute
backward    embed   m0      on compute
forward     embed   m1      on compute
forward     h.0     m1      on compute
forward     head    m1      on compute
backward    head    m1      on compute  adds
all_reduce  head    m1  g2  on reduce   last  after backward head m1
backward    h.0     m1      on compute  adds
all_reduce  h.0     m1  g1  on reduce   last  after backward h.0 m1
backward    embed   m1      on compute  adds
all_reduce  embed   m1  g0  on reduce   last  after backward embed m1
norm                        on reduce
update      embed           on compute        after norm
update      h.0             on compute
update      head            on compute
)" + 1);
}

TEST(Text, Zero1Reproducible) {
  ScheduleInput in = schedule_input({.num_blocks = 0}, make_strategy("1", 4, 0, 2), 3);
  in.policy.reproducible = true;
  EXPECT_EQ(text(build_train(in)), R"(
gather          embed       s0  on gather
gather          head        s1  on gather
forward         embed   m0      on compute                     after gather embed
forward         head    m0      on compute
backward        head    m0      on compute                     after gather head
reduce_scatter  head    m0  g1  on reduce   a0 = x             after backward head m0
backward        embed   m0      on compute
reduce_scatter  embed   m0  g0  on reduce   a0 = x             after backward embed m0
forward         embed   m1      on compute
forward         head    m1      on compute
backward        head    m1      on compute                     after reduce_scatter embed m0
reduce_scatter  head    m1  g1  on reduce   a1 = x + a0        after backward head m1
backward        embed   m1      on compute
reduce_scatter  embed   m1  g0  on reduce   a1 = x + a0        after backward embed m1
forward         embed   m2      on compute
forward         head    m2      on compute
backward        head    m2      on compute                     after reduce_scatter embed m1
reduce_scatter  head    m2  g1  on reduce   a0 = x + a1, last  after backward head m2
backward        embed   m2      on compute
reduce_scatter  embed   m2  g0  on reduce   a0 = x + a1, last  after backward embed m2
norm                            on reduce
update          embed           on compute                     after norm
update          head            on compute
)" + 1);
}

TEST(Text, OneRank) {
  ScheduleInput in = schedule_input({.num_blocks = 1}, make_strategy("3", 1, 0, 2), 1);
  EXPECT_EQ(text(build_train(in)), R"(
forward         embed   m0      on compute
forward         h.0     m0      on compute
forward         head    m0      on compute
backward        head    m0      on compute
reduce_scatter  head    m0  g2  on reduce   last  after backward head m0
backward        h.0     m0      on compute
reduce_scatter  h.0     m0  g1  on reduce   last  after backward h.0 m0
backward        embed   m0      on compute
reduce_scatter  embed   m0  g0  on reduce   last  after backward embed m0
norm                            on reduce
update          embed           on compute        after norm
update          h.0             on compute
update          head            on compute
)" + 1);
}

TEST(Text, Evaluation) {
  const ScheduleInput in = forward_input({.num_blocks = 3}, make_strategy("3", 4, 0, 2));
  EXPECT_EQ(text(build_forward(in, /*with_loss=*/true)), R"(
gather     embed   m0  s0  on gather
gather     h.0     m0  s1  on gather
forward    embed   m0      on compute  after gather embed m0
gather     h.1     m0  s2  on gather
forward    h.0     m0      on compute  after gather h.0 m0
release    h.0     m0  s1  on compute
gather     h.2     m0  s1  on gather   after release h.0 m0
forward    h.1     m0      on compute  after gather h.1 m0
release    h.1     m0  s2  on compute
gather     head    m0  s3  on gather
forward    h.2     m0      on compute  after gather h.2 m0
release    h.2     m0  s1  on compute
forward    head    m0      on compute  after gather head m0
release    embed   m0  s0  on compute
release    head    m0  s3  on compute
norm                       on reduce   after forward head m0
)" + 1);
}

TEST(Text, TheHashIsOfTheCollectivesAlone) {
  ScheduleInput in = schedule_input({.num_blocks = 2}, make_strategy("2", 4, 0, 2), 2);
  const auto hash = collective_hash(build_train(in));
  in.policy.recompute = Recompute::full;  // computes more, communicates the same
  EXPECT_EQ(collective_hash(build_train(in)), hash);
  in.policy.recompute = Recompute::none;
  in.policy.reduce = Reduce::last;
  EXPECT_NE(collective_hash(build_train(in)), hash);
  in.policy.reduce = Reduce::each;
  in.units[1].name = "h.x";
  EXPECT_NE(collective_hash(build_train(in)), hash);
  Schedule swapped = build_train(in);
  const auto before = collective_hash(swapped);
  std::swap(swapped.list[0], swapped.list[1]);
  EXPECT_NE(collective_hash(swapped), before);
  in.policy.reproducible = true;  // the same collectives, summed in another order
  in.units[1].name = "h.0";
  in.num_micro = 3;
  const auto counter = collective_hash(build_train(in));
  in.policy.reproducible = false;
  EXPECT_NE(collective_hash(build_train(in)), counter);
}

}  // namespace
}  // namespace tessera::test
