// SPDX-License-Identifier: Apache-2.0
// The norm at the end of a step: sums at ExactSum's bound, and the callbacks around it.

#include <gtest/gtest.h>

#include <thread>

#include "tests/train/device/device_runs.hpp"

namespace tessera::test {
namespace {

TEST(Norm, SumsAtTheBoundAreAddedOverRanks) {
  for (const bool copies : {false, true})
    run_local(
        4, [](World& world) { EXPECT_EQ(sums_at_the_bound(world), 0); }, copies);
}

/// Counts calls, and those on another thread than its own.
class CountingCallback final : public exec::StepCallback {
 public:
  shard::ControlFlags flags() override {
    called();
    ++asked;
    EXPECT_EQ(updated, 0) << "flags after an update of the same step";
    return {.stop = 0, .save = 1, .saved = asked};
  }
  void before_update(int /*unit*/) override {
    called();
    ++updated;
  }
  int asked = 0, updated = 0, elsewhere = 0;

 private:
  void called() { elsewhere += std::this_thread::get_id() == own_ ? 0 : 1; }
  std::thread::id own_ = std::this_thread::get_id();
};

TEST(Norm, CallbacksRunOnTheThreadOfTheStep) {
  const models::Model model = models::make(config_json({}), "test");
  const RandomTokens tokens(300, 37);
  const io::Sampler sampler(30, true, 1);
  for (const Stream::Mode streams : {Stream::Mode::threaded, Stream::Mode::deferred})
    for (const char* strategy : {"0", "3"}) {
      const Variant v{.world = 3, .strategy = strategy, .global_batch = 6, .streams = streams};
      run_local(v.world, [&](World& world) {
        train::Trainer trainer(world, options_of(model, v, 3));
        trainer.initialize();
        CountingCallback callback;
        trainer.set_callback(&callback);
        for (int s = 0; s < 2; ++s) {
          callback.updated = 0;
          const auto report = trainer.step(tokens, sampler, 6 * s, 6);
          EXPECT_EQ(report.flags.save, v.world);
          EXPECT_EQ(report.flags.saved, v.world * (s + 1));
          EXPECT_EQ(callback.asked, s + 1);
          EXPECT_EQ(callback.updated, trainer.plan().layout.num_units());
        }
        EXPECT_EQ(callback.elsewhere, 0);
        trainer.set_callback(nullptr);
      });
    }
}

/// One rank wants to stop, from its n-th look at the flags on.
class StopAt final : public exec::StepCallback {
 public:
  explicit StopAt(int first) : first_(first) {}
  shard::ControlFlags flags() override { return {.stop = ++asked >= first_ ? 1 : 0, .save = 1, .saved = 0}; }
  void before_update(int /*unit*/) override {}
  int asked = 0;

 private:
  int first_;
};

TEST(StopFlags, EndEvaluationAndGenerationOnAllRanks) {
  const models::Model model = models::make(config_json({}), "test");
  const RandomTokens tokens(300, 37);
  constexpr int never = 1 << 30;
  for (const char* strategy : {"0", "3"})
    for (const int asking : {0, 2}) {
      const Variant v{.world = 3, .strategy = strategy, .global_batch = 6};
      run_local(v.world, [&](World& world) {
        train::Trainer trainer(world, options_of(model, v, 3));
        trainer.initialize();
        const std::int64_t each = trainer.plan().spec.eval_rows() * v.world;  // samples of a pass
        const infer::EvalReport all = trainer.evaluate(tokens, 4 * each), two = trainer.evaluate(tokens, 2 * each);
        EXPECT_TRUE(all.complete);
        const auto evaluated = [&](int first) {
          StopAt callback(world.rank() == asking ? first : never);
          trainer.set_callback(&callback);
          const infer::EvalReport report = trainer.evaluate(tokens, 4 * each);
          trainer.set_callback(nullptr);
          return std::pair(report, callback.asked);
        };
        const auto [cut, passes] = evaluated(2);
        EXPECT_EQ(passes, 2);
        EXPECT_FALSE(cut.complete);
        EXPECT_EQ(cut.flags.stop, 1);
        EXPECT_EQ(cut.tokens, two.tokens);
        EXPECT_EQ(cut.loss, two.loss);
        const auto [last, all_passes] = evaluated(4);  // in the last pass there is nothing left to cut
        EXPECT_EQ(all_passes, 4);
        EXPECT_TRUE(last.complete);
        EXPECT_EQ(last.flags.stop, 1);
        EXPECT_EQ(last.loss, all.loss);

        StopAt third(world.rank() == asking ? 3 : never);
        trainer.set_callback(&third);
        const std::vector<std::int32_t> prompt = {1, 2, 3};
        EXPECT_FALSE(trainer.generate(prompt, 6, 0, 3).has_value());
        EXPECT_EQ(third.asked, 3);
        trainer.set_callback(nullptr);
        EXPECT_TRUE(trainer.generate(prompt, 6, 0, 3).has_value());
      });
    }
}

}  // namespace
}  // namespace tessera::test
