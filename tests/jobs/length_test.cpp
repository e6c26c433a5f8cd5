// SPDX-License-Identifier: Apache-2.0
// The length of a run, and schedules that are longer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jobs/cli/session/setup.hpp"
#include "tests/jobs/parse.hpp"

namespace tessera::jobs {
namespace {

using testing::HasSubstr;

Options train_options(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "train");
  return parsed(std::move(arguments)).options;
}

TEST(Length, LastPartialBatchCounts) {
  const RunLength length = run_length(train_options({"--num_train_epochs", "2"}), 10, 4);
  EXPECT_EQ(length.total_steps, 6);
  std::int64_t samples = 0;
  for (std::int64_t step = 0; step < length.total_steps; ++step) samples += length.next(samples, 4);
  EXPECT_EQ(samples, 20);
  EXPECT_EQ(run_length(train_options({"--max_steps", "7"}), 10, 4).total_steps, 7);
  EXPECT_EQ(run_length(train_options({"--num_train_epochs", "0.5"}), 10, 1).total_steps, 5);
  EXPECT_THROW((void)run_length(train_options({"--num_train_epochs", "0"}), 10, 4), Error);
}

TEST(Length, GoesOnAfterAResume) {
  RunLength same = run_length(train_options({"--num_train_epochs", "2"}), 10, 4);
  same.resume(4, 14, 4);
  EXPECT_EQ(same.total_steps, 6);
  RunLength smaller =
      run_length(train_options({"--num_train_epochs", "2"}), 10, 2);  // after four steps of 4, 4, 2 and 4 samples
  smaller.resume(4, 14, 2);
  EXPECT_EQ(smaller.total_steps, 4 + 3);
  std::int64_t samples = 14;
  for (int step = 4; step < 7; ++step) samples += smaller.next(samples, 2);
  EXPECT_EQ(samples, 20);
  // After 5 of 10 samples, which no steps of 4 make: two more steps, so that all are trained on.
  RunLength larger = run_length(train_options({"--num_train_epochs", "1"}), 10, 4);
  larger.resume(5, 5, 4);
  EXPECT_EQ(larger.total_steps, 5 + 2);
  RunLength half = run_length(train_options({"--num_train_epochs", "1.5"}), 10, 4);  // ends after 18 samples
  half.resume(3, 9, 4);
  EXPECT_EQ(half.total_steps, 3 + 1 + 2);
  RunLength ended = run_length(train_options({"--num_train_epochs", "1.5"}), 10, 4);
  ended.resume(6, 18, 4);
  EXPECT_EQ(ended.total_steps, 6);
  RunLength over = run_length(train_options({"--num_train_epochs", "1"}), 10, 4);
  over.resume(9, 25, 4);
  EXPECT_EQ(over.total_steps, 9);
}

TEST(Length, SchedulesLongerThanTheRunAreNamed) {
  const auto cut = [](std::vector<std::string> arguments, double steps) {
    return cut_schedule(lr_schedule(train_options(std::move(arguments)), steps));
  };
  EXPECT_THAT(cut({"--warmup_steps", "100", "--learning_rate", "3e-4"}, 3),
              HasSubstr("the warm-up has 100 steps, and the run 3: the learning rate ends at 6e-06 and never reaches"));
  EXPECT_NE(cut({"--warmup_steps", "3"}, 3), "");
  EXPECT_EQ(cut({"--warmup_steps", "2"}, 3), "");
  EXPECT_EQ(cut({"--warmup_steps", "0"}, 1), "");
  EXPECT_THAT(cut({"--lr_scheduler_type", "wsd", "--warmup_steps", "2", "--lr_decay_steps", "100"}, 6),
              HasSubstr("the decay has 100 steps, and 4 are left behind the warm-up"));
  EXPECT_EQ(cut({"--lr_scheduler_type", "wsd", "--warmup_steps", "2", "--lr_decay_steps", "4"}, 6), "");
  EXPECT_EQ(cut({"--lr_scheduler_type", "cosine", "--lr_decay_steps", "100"}, 6), "");
}

}  // namespace
}  // namespace tessera::jobs
