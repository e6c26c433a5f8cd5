// Inside a step Tessera's own code allocates nothing; and the test would notice if it did.

#include <gtest/gtest.h>

#include "tests/base/alloc_counter.hpp"
#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

std::int64_t allocations_in_steps(const Variant& v, const std::string& config = config_json({})) {
  models::Model model = models::make(config, "test");
  MadeTokens tokens(400, 37);
  std::int64_t counted = 0;
  run_local(
      v.world,
      [&](World& world) {
        train::Trainer trainer(world, options_of(model, v, 9));
        trainer.initialise();
        const io::Sampler sampler(40, true, 1);
        (void)trainer.step(tokens, sampler, 0, v.global_batch);
        world.barrier();
        const auto before = alloc_count();
        for (int s = 1; s < 4; ++s) (void)trainer.step(tokens, sampler, s * v.global_batch, v.global_batch);
        const auto after = alloc_count();
        if (world.rank() == 0) counted = static_cast<std::int64_t>(after - before);
        world.barrier();
      },
      v.copies);
  return counted;
}

TEST(Allocation, NoneInAStep) {
  for (const char* strategy : {"0", "1", "2", "3"})
    for (const bool copies : {false, true})
      for (const std::int64_t accumulation : {1, 3})
        for (const bool recompute : {false, true}) {
          const Variant v{.world = 2, .strategy = strategy, .global_batch = 2 * accumulation, .recompute = recompute, .reproducible = accumulation == 3, .copies = copies};
          EXPECT_EQ(allocations_in_steps(v), 0) << v.str();
        }
}

TEST(Allocation, NoneInAStepOfTheOtherFamilies) {
  for (const char* config : {qwen3_config, experts_config})
    for (const bool recompute : {false, true}) {
      const Variant v{.world = 2, .global_batch = 6, .micro_batch = 2, .recompute = recompute, .copies = recompute};
      EXPECT_EQ(allocations_in_steps(v, config), 0) << v.str();
    }
}

TEST(Allocation, AnAllocationInACollectiveIsNoticed) {
  Variant v{.world = 2, .global_batch = 2};
  v.delay.disturb = [] { ::operator delete(::operator new(16)); };
  EXPECT_GE(allocations_in_steps(v), 3 * 8);  // three steps of four units: as many gathers and reduces, at the least
}

}  // namespace
}  // namespace tessera::test
