// The norm of ranks whose sums are at ExactSum's bound.

#include <gtest/gtest.h>

#include "tests/train/device/device_runs.hpp"

namespace tessera::test {
namespace {

TEST(Norm, SumsAtTheBoundAreAddedOverRanks) {
  for (const bool copies : {false, true})
    run_local(
        4, [](World& world) { EXPECT_EQ(sums_at_the_bound(world), 0); }, copies);
}

}  // namespace
}  // namespace tessera::test
