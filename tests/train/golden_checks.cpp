// SPDX-License-Identifier: Apache-2.0
#include "tests/train/golden_checks.hpp"

#include <gtest/gtest.h>

namespace tessera::test {

std::vector<double> check(const Golden& golden, const Variant& variant) {
  std::vector<double> curve;
  run_local(
      variant.world,
      [&](World& world) {
        const GoldenRun run = run_golden(world, golden, variant);
        for (const std::string& wrong : run.wrong) ADD_FAILURE() << wrong;
        if (world.rank() == 0) curve = run.curve;
      },
      variant.copies);
  EXPECT_EQ(curve.size(), 2 * golden.expected["steps"].get<std::size_t>());
  return curve;
}

void expect_golden_of_every_strategy(const Golden& golden) {
  for (const int world : {1, 2, 3, 4}) {  // if a step has fewer micro-batches, some are empty
    std::vector<double> first;
    for (const char* strategy : {"0", "1", "2", "3", "HYBRID_SHARD"}) {
      const bool hybrid = strategy[0] == 'H';
      if (hybrid && world != 4) continue;
      Variant v = golden_family(golden, world);
      v.strategy = strategy;
      v.group = hybrid ? 2 : 0;
      v.streams = world == 3 ? Stream::Mode::deferred : Stream::Mode::threaded;
      const std::vector<double> curve = check(golden, v);
      if (first.empty()) first = curve;
      if (!hybrid) { EXPECT_EQ(curve, first) << v.str(); }
    }
  }
}

}  // namespace tessera::test
