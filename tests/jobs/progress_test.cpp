// SPDX-License-Identifier: Apache-2.0
// Progress: lines, bars, and when each is used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/file/work_progress.hpp"
#include "jobs/cli/session/progress.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/progress_line.hpp"
#include "tests/jobs/parse.hpp"

namespace tessera::jobs {
namespace {

const Work tokens{.name = "tokens"};
const WorkDone eighth{.done = 1u << 30, .total = 8ull << 30, .seconds = 10, .detail = "1.2M tokens"};

TEST(Progress, AsALine) {
  EXPECT_EQ(progress_text(tokens, eighth),
            "tokens    12.5% | 1.00 GiB of 8.00 GiB | 102.40 MiB/s | 00:01:10 left | 1.2M tokens");
  EXPECT_EQ(progress_text({.name = "train", .unit = Work::Unit::steps}, {.done = 3, .total = 12, .seconds = 6}),
            "train     25.0% | 3 of 12 steps | 0.50/s | 00:00:18 left");
  EXPECT_EQ(progress_text({.name = "load"}, {.total = 5}), "load      0.0% | 0 B of 5 B | 0 B/s");
}

TEST(Progress, AsABarIsNoWiderThanTheTerminal) {
  EXPECT_EQ(progress_bar(tokens, {.done = 1, .total = 2, .seconds = 1}, 80),
            "tokens    [============>           ]  50.0% | 1 B of 2 B | 1 B/s | 00:00:01 left");
  for (const std::size_t width : {1u, 20u, 60u, 79u, 200u}) {
    EXPECT_LE(progress_bar(tokens, eighth, width).size(), width);
    EXPECT_LE(progress_bar(tokens, {.done = 9, .total = 2, .seconds = 0}, width).size(), width);
  }
}

TEST(Progress, IsLinesUnlessABarIsAskedFor) {  // stdout of a test is no terminal
  const auto style = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "train");
    return progress_style(parsed(arguments).options);
  };
  EXPECT_EQ(style({"--progress", "lines"}), ProgressStyle::lines);
  EXPECT_EQ(style({"--progress", "bar"}), ProgressStyle::bar);
  EXPECT_EQ(style({"--progress", "none"}), ProgressStyle::none);
  EXPECT_EQ(style({"--progress", "bar", "--quiet"}), ProgressStyle::none);
  EXPECT_EQ(style({"--disable_tqdm", "true"}), ProgressStyle::lines);
}

TEST(Progress, BarStaysBelowTheLines) {
  set_progress_style(ProgressStyle::bar);
  testing::internal::CaptureStdout();
  {
    ProgressView view({.name = "eval", .unit = Work::Unit::samples});
    view(1, 4);
    log::info("a line");
    view(4, 4);
  }
  io::report_work("load", 0, 100);
  io::report_work("load", 100, 100);
  set_progress_style(ProgressStyle::lines);
  const std::string out = testing::internal::GetCapturedStdout();
  EXPECT_THAT(out, testing::MatchesRegex("\r\x1b\\[Keval .* 25\\.0% .*\r\x1b\\[Ka line\neval .*\r\x1b\\[K"
                                         "\r\x1b\\[Kload .*\r\x1b\\[K"));
}

TEST(LogLevel, ErrorPrintsNoWarnings) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int before = log::warnings();
  log::set_level(log::Level::error);
  log::info("not printed");
  log::warn(99, "not printed at the level error");
  log::set_level(log::Level::warning);
  log::info("not printed");
  log::warn(99, "printed");
  log::set_level(log::Level::info);
  log::info("printed");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "printed\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "warning W099: printed\n");
  EXPECT_EQ(log::warnings(), before + 2) << "counted all the same";
}

}  // namespace
}  // namespace tessera::jobs
