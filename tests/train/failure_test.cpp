// What ends a run: a loss that is not finite, ranks that disagree, a rank that throws.

#include <gtest/gtest.h>

#include <mutex>

#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

TEST(Failure, NonFiniteLossStopsEveryRankBeforeTheUpdate) {
  models::Model model = models::make(config_json({}), "test");
  MadeTokens tokens(300, 37);
  for (const char* strategy : {"0", "3"}) {
    Variant v{.world = 3, .strategy = strategy, .global_batch = 6};
    std::mutex mutex;
    int refused = 0;
    run_local(v.world, [&](World& world) {
      train::Trainer trainer(world, options_of(model, v, 3));
      trainer.initialise();
      const io::Sampler sampler(30, true, 1);
      (void)trainer.step(tokens, sampler, 0, 6);
      if (world.rank() == 1) trainer.shards()[1].data[0] = std::numeric_limits<float>::quiet_NaN();  // a weight of h.0, on one rank
      trainer.parameters_changed();
      const auto before = trainer.state_hash();
      try {
        (void)trainer.step(tokens, sampler, 6, 6);
        ADD_FAILURE() << "trained on";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::diverged);
        EXPECT_NE(error.line().find("step 2"), std::string::npos) << error.line();
        EXPECT_NE(error.line().find("unit"), std::string::npos) << error.line();
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

class BrokenTokens : public MadeTokens {
 public:
  using MadeTokens::MadeTokens;
  void read(std::int64_t, std::int64_t, std::int32_t*) const override { throw Error(ExitCode::data, "the disk is gone", "token 17"); }
};

TEST(Failure, ARankThatThrowsEndsAllOthers) {
  models::Model model = models::make(config_json({}), "test");
  MadeTokens good(300, 37);
  BrokenTokens bad(300, 37);
  for (const bool copies : {false, true}) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THROW(run_local(
                     4,
                     [&](World& world) {
                       Variant v{.world = 4, .global_batch = 8};
                       train::Trainer trainer(world, options_of(model, v, 3));
                       trainer.initialise();
                       const io::Sampler sampler(30, true, 1);
                       const io::TokenStream& tokens = world.rank() == 2 ? static_cast<const io::TokenStream&>(bad) : good;
                       (void)trainer.step(tokens, sampler, 0, 8);
                     },
                     copies),
                 Error);
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 5.0);
  }
}

}  // namespace
}  // namespace tessera::test
