// SPDX-License-Identifier: Apache-2.0
// Pure parts of a run: shares of cores, lines, JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "io/file/text_file.hpp"
#include "jobs/bench/step_gemms.hpp"
#include "jobs/cli/session/gemm_peak.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "jobs/cli/session/log_lines.hpp"
#include "jobs/cli/session/run_directory.hpp"
#include "jobs/cli/session/trace.hpp"
#include "runtime/base/warning_list.hpp"
#include "tests/io/files.hpp"
#include "tests/jobs/parse.hpp"

namespace tessera::jobs {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Cores, AreSharedFairly) {
  EXPECT_THAT(fair_shares({{"a", {0, 1, 2, 3}}, {"a", {0, 1, 2, 3}}}), ElementsAre(2, 2));
  EXPECT_THAT(fair_shares({{"a", {0, 1}}, {"a", {2, 3}}, {"b", {0, 1}}}), ElementsAre(2, 2, 2));
  EXPECT_THAT(fair_shares({{"a", {0}}, {"a", {0}}, {"a", {0, 1}}}),
              ElementsAre(DoubleNear(1.0 / 3, 1e-12), DoubleNear(1.0 / 3, 1e-12), DoubleNear(4.0 / 3, 1e-12)));
  EXPECT_EQ(cpu_list({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
  EXPECT_FALSE(affinity_cpus().empty());
}

TEST(Cores, ThreadsOfRanks) {
  run_local(3, [](World& world) {
    const ThreadAllocation chosen = allocate_threads(world, 0);
    const double cores = static_cast<double>(affinity_cpus().size());
    EXPECT_EQ(chosen.threads, std::max(1, static_cast<int>(cores / 3)));
    EXPECT_EQ(chosen.overcommitted, cores < 3);
    EXPECT_TRUE(allocate_threads(world, static_cast<int>(cores) + 1).overcommitted);
  });
}

TEST(Memory, CanBeRead) {
  EXPECT_GT(pss_bytes(), 100000u);
  EXPECT_GT(host_memory().available, 1000000u);
  EXPECT_LE(host_memory().available, host_memory().total);
}

TEST(Json, NumbersKeepAllDigitsAndNonFiniteAreStrings) {
  const double value = 2.8123456789012345;
  EXPECT_EQ(nlohmann::json::parse(json_number(value).dump()).get<double>(), value);
  EXPECT_EQ(json_number(std::nan("")).dump(), "\"NaN\"");
  EXPECT_EQ(json_number(std::numeric_limits<double>::infinity()).dump(), "\"Infinity\"");
  EXPECT_EQ(json_number(-std::numeric_limits<double>::infinity()).dump(), "\"-Infinity\"");
}

TEST(Log, KeepsTheStepsThatAreNotDoneAgain) {
  const std::string first = "{\"loss\":2.5,\"global_step\":1}\n{\"loss\":2.25,\"global_step\":2}\n";
  const std::string saved = "{\"checkpoint\":\"out/checkpoint-2\",\"global_step\":2}\n";
  const std::string evaluated = "{\"eval_loss\":2.0,\"global_step\":2}\n";
  const std::string later = "{\"loss\":2.0,\"global_step\":3}\n{\"eval_loss\":1.5,\"global_step\":3}\n";
  const std::string half = "{\"loss\":1.7";
  const std::string log = first + saved + evaluated + later + half;
  EXPECT_EQ(records_to_keep(log, {"out", 2}), first + saved + evaluated);
  EXPECT_EQ(records_to_keep(log, {"out", 2, /*finished=*/true}), first + saved)
      << "evaluated again after the last step";
  EXPECT_EQ(records_to_keep(log, {"out", 3}), first + saved + evaluated + later);
  EXPECT_EQ(records_to_keep(log, {"out", 0}), "");
  EXPECT_EQ(records_to_keep(first, {"out", 9}), first);
}

TEST(Log, OfARunWhoseDirectoryWasTakenStaysAsItIs) {
  const test::TempDir folder(test::TempDir::Storage::memory);
  const Options options = parsed({"train", "--output_dir", folder.path(), "--add_version", "false"}).options;
  run_local(1, [&](World& world) {
    RunDirectory run(world, options);
    std::string owner;
    {
      const io::DirectoryLock lock(folder.path());
      owner = lock.owner();
      run.set_owner(folder.path(), owner);
      run.log({{"global_step", 1}});
    }
    const std::string log = io::read_text(run.file("logging.jsonl"), 4096);
    EXPECT_TRUE(log.ends_with("{\"global_step\":1}\n")) << log;  // after the warnings of tests before this one
    EXPECT_EQ(std::ranges::count(log, '\n'), std::ssize(log::warnings_from(0)) + 1) << log;
    const io::DirectoryLock taken(folder.path());
    ASSERT_NE(taken.owner(), owner);
    test::expect_error(ExitCode::data, "E150 another run has taken the directory", [&] {
      run.log({{"global_step", 2}});
    });
    run.fail("cut off");
    EXPECT_EQ(io::read_text(run.file("logging.jsonl"), 4096), log);
    EXPECT_EQ(io::read_text(run.file("STATUS"), 4096), "running\n");
  });
}

TEST(RunDirectoryStatus, HasTheErrorThatEndsTheRank) {
  const test::TempDir folder;
  const Options options = parsed({"train", "--output_dir", folder / "run"}).options;
  run_local(1, [&](World& world) {
    const RunDirectory run(world, options);
    log::error_here("rank 1 has died\nin step 4");
    log::error_here("another one");
    EXPECT_EQ(io::read_text(run.file("STATUS"), 4096), "failed\nrank 1 has died in step 4\n") << "the first error";
  });
}

TEST(Peak, IsMeasuredAgainWhenAStepIsFaster) {
  testing::internal::CaptureStdout();
  run_local(3, [](World& world) {
    int measured = 0;
    ComputePeak peak(1e9, [&] { return ++measured, 4e9; });
    EXPECT_EQ(peak.mfu(world, 5e8, 1), 0.5);
    EXPECT_EQ(measured, 0);
    // One rank alone is faster: all measure again.
    EXPECT_EQ(peak.mfu(world, world.rank() == 1 ? 2e9 : 1e9, 1), world.rank() == 1 ? 0.5 : 0.25);
    EXPECT_EQ(measured, 1);
    EXPECT_EQ(peak.mfu(world, 8e9, 1), 1) << "never above the peak, whatever is measured";
    EXPECT_EQ(measured, 2);
    EXPECT_EQ(peak.flops(), 8e9);
    EXPECT_EQ(ComputePeak(1e9).mfu(world, 2e9, 1), 2) << "a published peak stays";
    EXPECT_FALSE(ComputePeak::unknown("no table has it").mfu(world, 2e9, 1));
  });
  const std::string out = testing::internal::GetCapturedStdout();
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = out.find("measured again: 4.0 GFLOP/s", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 3u) << "one by each of the three ranks in this process\n" << out;
}

TEST(Lines, Step) {
  StepLine line{.report = {.step = 120, .loss = 2.81234, .grad_norm = 0.912, .learning_rate = 3e-4, .tokens = 100},
                .interval = {},
                .total_steps = 1000};
  line.interval.add({.tokens = 18200, .seconds = 1, .data_seconds = 0.008, .comm_seconds = 0.124});
  line.mfu = 0.412;
  line.memory = 1u << 30;
  line.memory_limit = 4ull << 30;
  line.elapsed = 151;
  line.remaining = 1110;
  EXPECT_EQ(
      step_line(line),
      "step 120/1000 | loss 2.8123 | grad_norm 0.912 | lr 3.00e-04 | tok/s 18.2k | mfu 41.2% | mem 1.00GiB/25% | data "
      "0.8% comm 12.4% | 00:02:31<00:18:30");
}

TEST(Lines, StepOnAGpuHasItsMemoryAndTheHosts) {
  StepLine line{.report = {.step = 1}, .interval = {}, .total_steps = 2};
  line.memory = 450ull << 20;
  line.memory_limit = 138ull << 30;  // of the GPU: the host's memory is no share of it
  line.gpu = {.process = 51ull << 30, .card = 140ull << 30};
  EXPECT_THAT(step_line(line), HasSubstr(" | mem 51.00GiB/36% host 450.00MiB | data "));
}

TEST(Lines, StepOfFineTuningHasTokensProcessedAndWithLoss) {
  StepLine line{.report = {.step = 1}, .interval = {}, .total_steps = 2};
  line.interval.add({.tokens = 20000, .processed = 58000, .seconds = 1});
  EXPECT_THAT(step_line(line), HasSubstr(" | tok/s 20.0k | ")) << "where every token has loss";
  line.masked = true;
  EXPECT_THAT(step_line(line), HasSubstr(" | tok/s 58.0k, 20.0k with loss | "));
}

TEST(Lines, MemoryOfARun) {
  MemoryUse use{.pss = {1ull << 30, 2ull << 30}, .gpu = {}, .arena = 512ull << 20, .other = 256ull << 20};
  EXPECT_THAT(
      memory_lines(use),
      ElementsAre("memory    PSS 1.00 GiB on the largest rank, 2.00 GiB over all ranks | arena 512.00 MiB | other "
                  "256.00 MiB (PSS - arena - PSS at the start)"));
  use.gpu = {51ull << 30, 102ull << 30};
  use.card = 140ull << 30, use.gpu_arena = 50ull << 30, use.gpu_other = 1ull << 30;
  EXPECT_THAT(
      memory_lines(use),
      ElementsAre("memory    GPU 51.00 GiB of 140.00 GiB on the largest rank, 102.00 GiB over all ranks | arena 50.00 "
                  "GiB | other 1.00 GiB (context, libraries)",
                  testing::StartsWith("          host: PSS 1.00 GiB on the largest rank")));
}

TEST(Resources, APlanLeavesSomeOfAGpuToLibraries) {
  EXPECT_EQ(gpu_reserve(Transport::mpi, 4), 768ull << 20);
  EXPECT_EQ(gpu_reserve(Transport::nccl, 1), 768ull << 20);
  EXPECT_EQ(gpu_reserve(Transport::nccl, 2), 1280ull << 20);
}

TEST(Lines, CommunicationIsAShareOfTheStepsThatTimeIt) {
  StepLine line{.report = {.step = 2}, .interval = {}, .total_steps = 2};
  line.interval.add({.seconds = 3, .comm_seconds = 0, .times_waits = false});
  line.interval.add({.seconds = 1, .comm_seconds = 0.25});
  EXPECT_NE(step_line(line).find("comm 25.0%"), std::string::npos) << step_line(line);
  EXPECT_EQ(line.interval.comm_steps, 1);
}

TEST(Lines, GemmsOfAStep) {
  const double seconds = 1.0 / 128;
  const StepGemms gemms{
      .all = {{"first", 6e12, 3, seconds}, {"second", 4e12, 1, seconds}}, .step_seconds = 8 * seconds, .peak = 1e15};
  testing::internal::CaptureStdout();
  print_gemms("zero3", gemms);
  const std::string out = testing::internal::GetCapturedStdout();
  for (const char* line :
       {"GEMMs of a step of zero3 on rank 0's GPU: 22.00 TFLOP in 31.25 ms, 704.0 TFLOP/s, 70.4% of the peak; 50.0% of "
        "the step",
        "       3       7.8125     23.438      75.0%      768.0      76.8%   first",
        "       1       7.8125      7.812      25.0%      512.0      51.2%   second"})
    EXPECT_NE(out.find(line), std::string::npos) << line << "\n" << out;
  EXPECT_EQ(gemms_json(gemms)[1].dump(),
            R"({"gemm":"second","calls":1,"seconds_a_call":0.0078125,"tflops":512.0,"share":0.25})");
}

TEST(Lines, StepWithoutAKnownPeakHasNoMfu) {
  EXPECT_EQ(step_line({.report = {.step = 1}, .interval = {}, .total_steps = 2}).find("mfu"), std::string::npos);
}

TEST(Lines, StepWithALossScale) {
  StepLine line{.scaled = true,
                .report = {.step = 3, .loss = 5.5, .grad_norm = 1.5, .learning_rate = 1e-3, .loss_scale = 65536},
                .interval = {},
                .total_steps = 9};
  EXPECT_EQ(step_line(line).substr(0, 64), "step 3/9 | loss 5.5000 | scale 65536 | grad_norm 1.500 | lr 1.00");
  line.report.skipped = true;
  EXPECT_EQ(step_line(line).substr(0, 60), "step 3/9 | loss 5.5000 | scale 65536 overflow: step skipped ");
}

TEST(Lines, Eval) {
  EXPECT_EQ(eval_line(200, 1000, {.loss = 2.7011, .token_accuracy = 0.482, .tokens = 64100, .seconds = 1}),
            "eval 200/1000 | loss 2.7011 | ppl 14.90 | token_acc 0.482 | tok/s 64.1k");
}

TEST(Lines, PrintableKeepsTextAndNothingElse) {
  const auto ids = [](const std::string& text) {
    std::vector<std::int32_t> out;
    for (const char c : text) out.push_back(static_cast<unsigned char>(c));
    return out;
  };
  EXPECT_EQ(printable(ids("a\n\xC3\xA9\xE2\x82\xAC")), "a\n\xC3\xA9\xE2\x82\xAC");
  EXPECT_EQ(printable(ids("\x1b[2J\xC3(\xF0\x9F")), "?[2J?(??");
  EXPECT_EQ(printable({65, 300, -1}), "A??");
}

TEST(Trace, IsJsonWithLanes) {
  const nlohmann::json json = nlohmann::json::parse(
      chrome_trace({{"gather h.0", 1, 0.001, 0.003}, {"wait gather h.0", 0, 0.0, 0.003}}, 1, 2, "host", "node"));
  EXPECT_EQ(json["distributedInfo"]["world_size"], 2);
  const nlohmann::json& span = json["traceEvents"][json["traceEvents"].size() - 2];
  EXPECT_EQ(span["name"], "gather h.0");
  EXPECT_EQ(span["ts"], 1000.0);
  EXPECT_EQ(span["dur"], 2000.0);
  EXPECT_EQ(span["tid"], 1);
}

}  // namespace
}  // namespace tessera::jobs
