// SPDX-License-Identifier: Apache-2.0
// Communication overlaps with compute: with a slow transport, a step takes the longer of the two, plus the first gather
// and the last reduce. Other load on the machine can only lengthen a step, so the shortest of several counts, and a
// case may be tried again. The trace is checked as well.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

struct Timing {
  double step = 0;  // seconds, the shortest
  int gathers = 0, reduces = 0;
  double hidden = 0;  // share of the communication's spans that overlaps compute spans, last step
};

double overlap_of(const std::vector<exec::TraceSpan>& spans) {
  double total = 0, hidden = 0;
  for (const auto& comm : spans) {
    if (comm.lane == 0) continue;
    total += comm.end_s - comm.begin_s;
    for (const auto& work : spans)
      if (work.lane == 0 && work.name.rfind("wait", 0) != 0)
        hidden += std::max(0.0, std::min(comm.end_s, work.end_s) - std::max(comm.begin_s, work.begin_s));
  }
  return total > 0 ? hidden / total : 0;
}

Timing measure(const Delay& delay, const char* strategy) {
  models::Model model =
      models::make(config_json({.layers = 6, .hidden = 192, .heads = 4, .vocab = 256, .positions = 96}), "test");
  RandomTokens tokens(4000, 256);
  Timing timing;
  run_local(
      2,
      [&](World& world) {
        Variant v{.world = 2, .strategy = strategy, .global_batch = 4, .micro_batch = 2, .tokens = 96, .delay = delay};
        DelayedWorld slow(world, v.delay);
        train::Trainer trainer(slow, options_of(model, v, 20));
        trainer.initialize();
        const io::Sampler sampler(40, true, 1);
        std::vector<double> seconds;
        for (int s = 0; s < 7; ++s) {
          if (s == 6) trainer.start_trace(1);
          seconds.push_back(trainer.step(tokens, sampler, s * 4, 4).seconds);
        }
        const auto spans = trainer.take_trace();
        if (world.rank() != 0) return;
        timing.step = *std::min_element(seconds.begin() + 1, seconds.end());
        timing.hidden = overlap_of(spans);
        for (const auto& instruction : trainer.plan().train.list) {
          timing.gathers += instruction.op == shard::Op::gather;
          timing.reduces += instruction.op == shard::Op::reduce_scatter;
        }
      },
      /*copies=*/true);
  return timing;
}

/// True if the step kept the bound. `share`: communication as a multiple of compute.
bool keeps_bound(const char* strategy, double share) {
  const double compute = measure({}, strategy).step;
  const Timing probe = measure({.gather_s = 1e-4, .reduce_s = 1e-4}, strategy);
  const double each = share * compute / (probe.gathers + probe.reduces);
  const Timing slow = measure({.gather_s = each, .reduce_s = each}, strategy);
  const double communication = each * (slow.gathers + slow.reduces);
  const double bound = 1.10 * std::max(compute, communication) + 2 * each;  // the first gather and the last reduce
  std::printf(
      "ZeRO-%s: compute %.1f ms, communication %.1f ms, step %.1f ms (bound %.1f), %.0f%% of communication under "
      "compute\n",
      strategy, 1e3 * compute, 1e3 * communication, 1e3 * slow.step, 1e3 * bound, 100 * slow.hidden);
  return slow.step <= bound && slow.hidden > (share < 1 ? 0.4 : 0.05);
}

TEST(Overlap, AStepTakesTheLongerOfComputeAndCommunication) {
  for (const char* strategy : {"2", "3"})
    for (const double share : {0.3, 3.0}) {  // communication well below compute, and well above
      bool kept = false;
      for (int attempt = 0; attempt < 5 && !kept; ++attempt) kept = keeps_bound(strategy, share);
      EXPECT_TRUE(kept) << "ZeRO-" << strategy << ", communication " << share << " of compute";
    }
}

// While a unit is all-reduced over the replicate axis, others are reduced and gathered over the shard axis. Every
// reduction takes 30 ms, and a backward between two of them far less, so the spans of the trace must overlap.
TEST(Overlap, TheReplicateAxisOverlapsTheShardAxis) {
  const models::Model model = models::make(config_json({.layers = 4}), "test");
  const RandomTokens tokens(400, 37);
  int overlapping = 0, all_reduces = 0;
  run_local(
      4,
      [&](World& world) {
        const Variant v{.world = 4,
                        .strategy = "HYBRID_SHARD",
                        .group = 2,
                        .global_batch = 8,
                        .delay = {.gather_s = 0.01, .reduce_s = 0.03}};
        DelayedWorld slow(world, v.delay);
        train::Trainer trainer(slow, options_of(model, v, 20));
        trainer.initialize();
        const io::Sampler sampler(40, true, 1);
        trainer.start_trace(1);
        trainer.step(tokens, sampler, 0, 8);
        const auto spans = trainer.take_trace();
        if (world.rank() != 0) return;
        for (const auto& all_reduce : spans) {
          if (!all_reduce.name.starts_with("all_reduce")) continue;
          ++all_reduces;
          overlapping += std::ranges::any_of(spans, [&](const exec::TraceSpan& other) {
            return (other.name.starts_with("reduce_scatter") || other.name.starts_with("gather")) &&
                   other.begin_s < all_reduce.end_s && all_reduce.begin_s < other.end_s;
          });
        }
      },
      /*copies=*/true);
  EXPECT_EQ(all_reduces, 2 * 6);            // micro-batches, units
  EXPECT_GE(overlapping, all_reduces - 2);  // nothing is left to overlap with the last ones
}

}  // namespace
}  // namespace tessera::test
