// SPDX-License-Identifier: Apache-2.0
// The batch equation: what is computed, what is refused, and that the micro-batches cover the global batch once.

#include "runtime/plan/batch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "runtime/base/error.hpp"

namespace tessera::plan {
namespace {

using Count = std::optional<std::int64_t>;

void expect(Count G, Count B, Count A, int world, std::int64_t global, std::int64_t micro, int steps) {
  const auto plan = solve_batch(G, B, A, world);
  EXPECT_EQ(plan.global_batch, global);
  EXPECT_EQ(plan.micro_batch, micro);
  EXPECT_EQ(plan.accumulation, steps);
  EXPECT_EQ(plan.data_ranks, world);
}

std::string refused(Count G, Count B, Count A, DataRanks world) {
  try {
    (void)solve_batch(G, B, A, world);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.line();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(Batch, SolvesForWhatIsMissing) {
  expect({}, {}, {}, 3, 24, 8, 1);
  expect({}, 4, {}, 2, 8, 4, 1);
  expect({}, {}, 5, 2, 80, 8, 5);
  expect({}, 4, 5, 8, 160, 4, 5);
  expect(96, 4, {}, 8, 96, 4, 3);
  expect(100, 4, {}, 8, 100, 4, 4);  // ceil
  expect(4, {}, {}, 1, 4, 8, 1);     // one short micro-batch
  expect(96, {}, 3, 8, 96, 4, 3);
  expect(97, {}, 3, 8, 97, 5, 3);
  expect(100, 4, 4, 8, 100, 4, 4);  // all three, and ceil(G/(B·W)) = A
  expect(std::int64_t{1} << 40, std::int64_t{1} << 20, {}, 1024, std::int64_t{1} << 40, std::int64_t{1} << 20, 1024);
}

TEST(Batch, AContradictionPrintsTheEquationAndTheWaysOut) {
  const std::string line = refused(96, 4, 5, 8);
  EXPECT_THAT(line, testing::HasSubstr("global_batch_size 96 != micro 4 x accumulation 5 x ranks 8 = 160"));
  EXPECT_THAT(
      line, testing::HasSubstr("Set gradient_accumulation_steps=3 or global_batch_size=160, or drop one of the three"));
  refused(10, 1, 9, 1);
  EXPECT_THAT(refused(10, {}, 6, 1),
              testing::HasSubstr("no micro-batch makes 6 accumulation steps of global_batch_size 10 on 1 ranks"));
  EXPECT_THAT(refused(96, 4, 5, {8, 2}),
              testing::HasSubstr("micro 4 x accumulation 5 x groups of ranks that have the same rows 8 = 160"));
  EXPECT_THAT(refused(10, {}, 6, {1, 2}), testing::HasSubstr("10 on 1 groups of ranks that have the same rows."));
}

TEST(Batch, NumbersThatAreNoBatchAreRefused) {
  EXPECT_THAT(refused(0, {}, {}, 1), testing::HasSubstr("global_batch_size is 0"));
  EXPECT_THAT(refused({}, -3, {}, 1), testing::HasSubstr("per_device_train_batch_size is -3"));
  EXPECT_THAT(refused({}, {}, 0, 1), testing::HasSubstr("gradient_accumulation_steps is 0"));
  const auto most = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(refused({}, most, 2, 1), testing::HasSubstr("overflows"));
  EXPECT_THAT(refused({}, most, {}, 2), testing::HasSubstr("overflows"));
  EXPECT_THAT(refused(most / 2, 3, {}, 2), testing::HasSubstr("accumulation steps"));
  EXPECT_THAT(refused({}, 1, most / 2, 1), testing::HasSubstr("accumulation steps"));
}

TEST(Batch, MicroBatchesTileTheGlobalBatchInOrder) {
  for (const int world : {1, 2, 3, 5, 8})
    for (std::int64_t G = 1; G <= 40; ++G)
      for (const std::int64_t B : {1, 2, 3, 7}) {
        const auto plan = solve_batch(G, B, {}, world);
        for (const std::int64_t samples : {G, G - 1, G / 2, std::int64_t{0}}) {
          std::int64_t next = 0;
          for (int a = 0; a < plan.accumulation; ++a)
            for (int r = 0; r < world; ++r) {  // m = a·W + r
              const auto range = plan.range(a, r, samples);
              ASSERT_EQ(range.first, next);
              ASSERT_TRUE(range.count >= 0 && range.count <= B);
              ASSERT_TRUE(range.count == B || range.first + range.count == samples);
              next += range.count;
            }
          ASSERT_EQ(next, samples);
        }
      }
}

}  // namespace
}  // namespace tessera::plan
