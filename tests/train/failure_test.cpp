// SPDX-License-Identifier: Apache-2.0
// Errors that end a run: a loss that is not finite, ranks that disagree, a rank that throws.

#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

TEST(Failure, NonFiniteLossStopsEveryRankBeforeTheUpdate) {
  models::Model model = models::make(config_json({}), "test");
  RandomTokens tokens(300, 37);
  for (const char* strategy : {"0", "3"}) {
    Variant v{.world = 3, .strategy = strategy, .global_batch = 6};
    std::mutex mutex;
    int refused = 0;
    run_local(v.world, [&](World& world) {
      train::Trainer trainer(world, options_of(model, v, 3));
      trainer.initialize();
      const io::Sampler sampler(30, true, 1);
      (void)trainer.step(tokens, sampler, 0, 6);
      if (world.rank() == 1)
        trainer.shards()[1].data.as<float>()[0] =
            std::numeric_limits<float>::quiet_NaN();  // a weight of h.0, on one rank
      trainer.parameters_changed();
      const auto before = trainer.state_hash();
      try {
        (void)trainer.step(tokens, sampler, 6, 6);
        ADD_FAILURE() << "trained on";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::diverged);
        EXPECT_NE(error.line().find("step 2"), std::string::npos) << error.line();
        EXPECT_NE(error.line().find("is not finite"), std::string::npos) << error.line();
        std::lock_guard lock(mutex);
        ++refused;
      }
      EXPECT_EQ(trainer.state_hash(), before);
    });
    EXPECT_EQ(refused, v.world);
  }
}

TEST(Failure, RanksThatDisagreeAreRefusedBeforeTheFirstStep) {
  models::Model model = models::make(config_json({}), "test");
  EXPECT_THROW(run_local(3,
                         [&](World& world) {
                           Variant v{.world = 3, .global_batch = 6};
                           v.learning_rate = world.rank() == 1 ? 2e-2 : 1e-2;
                           train::Trainer trainer(world, options_of(model, v, 3));
                         }),
               Error);
}

class BrokenTokens : public RandomTokens {
 public:
  using RandomTokens::RandomTokens;
  void read(std::int64_t, std::int64_t, std::int32_t*) const override {
    throw Error(ExitCode::data, "the disk is gone", "token 17");
  }
};

TEST(Failure, ARankThatThrowsEndsAllOthers) {
  models::Model model = models::make(config_json({}), "test");
  RandomTokens good(300, 37);
  BrokenTokens bad(300, 37);
  for (const bool copies : {false, true}) {
    try {
      run_local(
          4,
          [&](World& world) {
            Variant v{.world = 4, .global_batch = 8};
            train::Trainer trainer(world, options_of(model, v, 3));
            trainer.initialize();
            const io::Sampler sampler(30, true, 1);
            const io::TokenStream& tokens = world.rank() == 2 ? static_cast<const io::TokenStream&>(bad) : good;
            (void)trainer.step(tokens, sampler, 0, 8);
          },
          copies);
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {  // the rank's own error: nobody waited until it was late
      EXPECT_EQ(error.code(), ExitCode::data);
      EXPECT_NE(error.line().find("the disk is gone"), std::string::npos) << error.line();
    }
  }
}

// The data fails while communication threads gather: they end before the buffers they use.
TEST(Failure, BuffersOutliveGathersInFlight) {
  models::Model model = models::make(config_json({.layers = 4}), "test");
  const BrokenTokens bad(300, 37);
  for (const bool copies : {false, true})
    EXPECT_THROW(run_local(
                     2,
                     [&](World& world) {
                       Variant v{.world = 2, .global_batch = 2, .prefetch = 3, .delay = {.gather_s = 0.05}};
                       DelayedWorld slow(world, v.delay);
                       train::Trainer trainer(slow, options_of(model, v, 3));
                       trainer.initialize();
                       trainer.start_trace(1);
                       (void)trainer.step(bad, io::Sampler(30, true, 1), 0, 2);
                     },
                     copies),
                 Error);
}

TEST(Failure, ALateRankIsNamedWithStepUnitAndMicroBatch) {
  models::Model model = models::make(config_json({}), "test");
  const RandomTokens tokens(300, 37);
  try {
    run_local(
        2,
        [&](World& world) {
          train::Trainer trainer(world, options_of(model, {.world = 2, .global_batch = 4}, 3));
          trainer.initialize();
          if (world.rank() == 1) return std::this_thread::sleep_for(std::chrono::seconds(1));
          (void)trainer.step(tokens, io::Sampler(30, true, 1), 0, 4);
        },
        /*copies=*/true, /*ranks_per_node=*/0, /*comm_timeout_s=*/0.3);
    FAIL() << "nobody was missed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::communication);
    EXPECT_NE(error.line().find("rank 1 is late: step 1, gather "), std::string::npos) << error.line();
    EXPECT_NE(error.line().find(" m0; it has issued no collective there yet"), std::string::npos) << error.line();
  }
}

TEST(Failure, UnplannableRunsAreRefused) {
  models::Model model = models::make(config_json({}), "test");
  plan::RunSpec spec = options_of(model, {.world = 2, .global_batch = 4}, 1).run;
  spec.batch = plan::solve_batch(std::nullopt, std::int64_t{1} << 60, 1, 2);
  EXPECT_THROW((void)plan::make_plan(spec), Error);  // 2^60 · 9 tokens: beyond 64 bits in bytes
  spec.batch = plan::solve_batch(std::nullopt, 1, 1 << 30, 2);
  EXPECT_THROW((void)plan::make_plan(spec), Error);  // 2^32 instructions
  spec.batch = plan::solve_batch(4, 1, std::nullopt, 2);
  for (ParamSpec& param : model.params) param.trainable = false;
  EXPECT_THROW((void)plan::make_plan(spec), Error);  // nothing to train
}

}  // namespace
}  // namespace tessera::test
