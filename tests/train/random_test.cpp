// SPDX-License-Identifier: Apache-2.0
// Random configurations, seeded: odd widths, worlds, meshes, accumulation; each must agree with the unsharded run.

#include <gtest/gtest.h>

#include "runtime/base/rng.hpp"
#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : key_(seed) {}
  int from(int low, int high) {
    return low + static_cast<int>(philox(key_, counter_++)[0] % static_cast<std::uint32_t>(high - low + 1));
  }
  bool coin() { return from(0, 1) == 1; }

 private:
  std::uint64_t key_, counter_ = 0;
};

TEST(Random, AgreesWithTheUnshardedRun) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Dice dice(seed);
    const int heads = dice.from(1, 4);
    ModelShape shape{dice.from(1, 4), heads * dice.from(3, 11), heads, dice.from(11, 90), 24};
    models::Model model = models::make(config_json(shape), "test");
    RandomTokens tokens(900, shape.vocab);
    Variant v;
    v.world = dice.from(2, 9);
    v.strategy = std::to_string(dice.from(0, 3));
    if (v.strategy != "0")
      for (int group = 2; group < v.world; ++group)
        if (v.world % group == 0 && dice.coin()) v.group = group;
    v.tokens = dice.from(1, 24);
    v.micro_batch = dice.from(1, 3);
    v.global_batch = dice.from(1, 3 * v.world);
    v.reduce = dice.coin() ? shard::Reduce::each : shard::Reduce::last;
    v.prefetch = dice.from(0, 3);
    v.recompute = dice.coin();
    v.reshard = dice.coin();
    v.copies = dice.coin();
    v.streams = dice.coin() ? Stream::Mode::threaded : Stream::Mode::deferred;
    Variant single = v;
    single.world = 1;
    single.group = 0;
    single.strategy = "0";
    const RunInput input{&model, &tokens, 3, "", true, {}};
    const Outcome a = run(input, single), b = run(input, v);
    ASSERT_EQ(a.tokens, b.tokens) << v.str();
    for (std::size_t s = 0; s < a.losses.size(); ++s) {
      ASSERT_NEAR(a.losses[s], b.losses[s], 2e-5 * a.losses[s]) << seed << ": " << v.str();
      ASSERT_NEAR(a.norms[s], b.norms[s], 1e-4 * a.norms[s]) << seed << ": " << v.str();
    }
    double largest = 0;
    for (const float g : a.grads) largest = std::max(largest, std::abs(static_cast<double>(g)));
    for (std::size_t i = 0; i < a.grads.size(); ++i)
      ASSERT_NEAR(a.grads[i], b.grads[i], 5e-3 * largest) << seed << ": " << v.str();
  }
}

}  // namespace
}  // namespace tessera::test
