// SPDX-License-Identifier: Apache-2.0
// Pure parts of a run: shares of cores, lines, JSON, what a resume reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "io/file/text_file.hpp"
#include "jobs/bench/step_gemms.hpp"
#include "jobs/cli/session/best_checkpoint.hpp"
#include "jobs/cli/session/gemm_peak.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "jobs/cli/session/log_lines.hpp"
#include "jobs/cli/session/resume.hpp"
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

TEST(Progress, KeepsTheLossScaleOfAnFp16Run) {
  const Options options = parsed({"train"}).options;
  const DataIdentity data{1000, 10, 64, 1, true, 7};
  Progress progress{5, 40, 100, 2, train::LossScaleState{1024, 3, 7}};
  io::Manifest manifest;
  manifest.training = training_text(progress, data, options);
  const Progress back = read_progress(manifest, "here", data, false);
  EXPECT_EQ(back.skipped, 2);
  EXPECT_EQ(back.loss_scale, progress.loss_scale);
  EXPECT_EQ(manifest.training.find("tolerated"), std::string::npos) << "where there is a hysteresis alone";
  Progress patient = progress;
  patient.loss_scale->tolerated = 2;
  io::Manifest of_patient;
  of_patient.training = training_text(patient, data, options);
  EXPECT_EQ(read_progress(of_patient, "here", data, false).loss_scale, patient.loss_scale);
  const auto with = [&](const char* count) {
    io::Manifest changed;
    changed.training = std::string(manifest.training)
                           .replace(manifest.training.find(",\"overflows_at_least\":7"),
                                    std::strlen(",\"overflows_at_least\":7"), count);
    return read_progress(changed, "here", data, false).loss_scale->at_least;
  };
  EXPECT_EQ(with(""), 0) << "of before it was kept";
  EXPECT_EQ(with(",\"overflows_at_least\":2"), 2);
  for (const char* bad : {"-1", "1.5", "\"x\"", "null"})
    EXPECT_THROW((void)with((std::string(",\"overflows_at_least\":") + bad).c_str()), Error) << bad;
  for (const char* bad : {"1000", "0", "-4", "\"x\"", "1e999"}) {
    std::string text = manifest.training;
    text.replace(text.find("1024"), std::strlen("1024.0"), bad);
    io::Manifest broken;
    broken.training = text;
    EXPECT_THROW((void)read_progress(broken, "here", data, false), Error) << bad;
  }
  manifest.training = training_text({5, 40, 100, 0, std::nullopt}, data, options);
  EXPECT_EQ(manifest.training.find("scale"), std::string::npos) << "of fp16 alone";
  EXPECT_FALSE(read_progress(manifest, "here", data, false).loss_scale);
}

TEST(Resume, ListsTheSettingsThatDiffer) {
  train::TrainerOptions options;
  options.lr = {.kind = train::LrSchedule::Kind::cosine, .learning_rate = 1e-3, .warmup_steps = 2, .total_steps = 8};
  options.optimizer.weight_decay = 0.1;
  options.run.batch.global_batch = 8;
  const nlohmann::ordered_json before = training_settings(options);
  io::Manifest manifest;
  manifest.training = "{}";
  manifest.run_metadata = nlohmann::ordered_json{{"settings", before}}.dump();
  EXPECT_TRUE(changed_settings(manifest, before).empty());
  options.lr.kind = train::LrSchedule::Kind::linear;
  options.lr.learning_rate = 3e-4;
  options.optimizer.beta2 = 0.95;
  options.optimizer.weight_decay = 0;
  options.run.batch.global_batch = 16;
  options.run.strategy.policy.param_dtype = DType::bf16;
  std::string list;
  for (const SettingChange& c : changed_settings(manifest, training_settings(options)))
    list += c.name + " " + c.before + " -> " + c.after + "; ";
  EXPECT_EQ(list,
            "learning_rate 0.001 -> 0.0003; lr_scheduler_type \"cosine\" -> \"linear\"; adam_beta2 0.999 -> 0.95; "
            "weight_decay 0.1 -> 0.0; global_batch_size 8 -> 16; compute_dtype \"fp32\" -> \"bf16\"; ");
  // A checkpoint of before settings were kept: the optimizer's and the types.
  manifest.run_metadata = R"({"compute_dtype": "fp32", "reduce_dtype": "fp32"})";
  manifest.training =
      R"({"optimizer": {"name": "adamw", "adam_beta1": 0.9, "adam_beta2": 0.999, "weight_decay": 0.0}})";
  list.clear();
  for (const SettingChange& c : changed_settings(manifest, training_settings(options))) list += c.name + "; ";
  EXPECT_EQ(list, "adam_beta2; compute_dtype; ");
  manifest.training = manifest.run_metadata = "no json";
  EXPECT_TRUE(changed_settings(manifest, before).empty());
}

TEST(Resume, TheLengthOfTheScheduleIsNotThatOfTheRun) {
  train::TrainerOptions options;
  options.lr = {.kind = train::LrSchedule::Kind::cosine, .learning_rate = 1e-3, .total_steps = 6};
  io::Manifest manifest;
  manifest.training = "{}";
  manifest.run_metadata = nlohmann::ordered_json{{"settings", training_settings(options)}}.dump();
  options.lr.total_steps = 9;
  EXPECT_EQ(text_of(changed_settings(manifest, training_settings(options))), "schedule_updates 6 -> 9");
}

TEST(Resume, MaxStepsBehindTheCheckpointAreRefused) {
  const Options options = parsed({"train", "--max_steps", "4"}).options;
  EXPECT_NO_THROW(require_max_steps(options, 4, "o/checkpoint-4"));
  try {
    require_max_steps(options, 6, "o/checkpoint-6");
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(ExitCode::usage));
    EXPECT_THAT(error.line(), HasSubstr("--max_steps 4 is behind step 6 of o/checkpoint-6"));
  }
  EXPECT_NO_THROW(require_max_steps(parsed({"train", "--num_train_epochs", "1"}).options, 6, "o/checkpoint-6"));
}

TEST(Best, IsRecordedWhereASaveWritesIt) {
  const BestCheckpoint best{{"eval_loss", false}, 4.02, 4, "out/checkpoint-4", "0badf00d"};
  const BestCheckpoint before{{"eval_loss", false}, 4.35, 2, "out/checkpoint-2"};
  Progress progress{.step = 4, .samples = 32, .tokens = 100};
  progress.schedule = ScheduleState{};
  const Options options = parsed({"train"}).options;
  const std::string without = training_text(progress, {}, options);
  progress.best = before;
  const std::string older = training_text(progress, {}, options);
  progress.best = best;
  EXPECT_EQ(with_best(without, best), training_text(progress, {}, options));
  EXPECT_EQ(with_best(older, best), training_text(progress, {}, options));
  EXPECT_EQ(best_from_json(to_json(best), "here").validation, "0badf00d");
  progress.schedule.reset();
  const std::string old_program = training_text(progress, {}, options);
  progress.best.reset();
  EXPECT_EQ(with_best(training_text(progress, {}, options), best), old_program);
  EXPECT_EQ(with_best_path(R"({"world": 2})", "/a/./b/checkpoint-4"),
            R"({"world":2,"best_model_checkpoint":"/a/b/checkpoint-4"})");
}

TEST(Best, ThatIsLostIsNotPrintedBeforeItsCheckpointIsTaken) {
  const test::TempDir folder;
  const BestCheckpoint best{{"eval_loss", false}, 4.02, 4, "", "0badf00d"};
  io::Manifest manifest;
  manifest.run_metadata = "{}";
  const auto find = [&](const std::vector<std::string>& more, const std::string& validation = "0badf00d") {
    std::vector<std::string> arguments = {"train"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Options options = parsed(arguments).options;
    FoundBest found;
    testing::internal::CaptureStderr();
    run_local(2, [&](World& world) {
      const FoundBest mine = find_best(world, options, manifest, folder / "checkpoint-6", best, validation);
      if (world.rank() == 0) found = mine;
    });
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    return found;
  };
  EXPECT_EQ(find({}).lost, "");
  EXPECT_THAT(find({"--metric_for_best_model", "loss"}).lost,
              HasSubstr("checkpoint-4 by eval_loss, is not beside " + folder / "checkpoint-6"));
  std::filesystem::create_directories(folder / "checkpoint-4");
  (void)folder.file("checkpoint-4/manifest.json", "{}");
  const FoundBest found = find({"--metric_for_best_model", "loss"});
  EXPECT_EQ(found.lost, "");
  ASSERT_TRUE(found.best.has_value());
  EXPECT_EQ(found.best->path, folder / "checkpoint-4");
  const FoundBest of_other_data = find({"--metric_for_best_model", "loss"}, "0badf00e");
  EXPECT_FALSE(of_other_data.best.has_value());
  EXPECT_THAT(of_other_data.lost, HasSubstr("checkpoint-4 by eval_loss, was chosen on other validation data"));
  EXPECT_TRUE(find({"--metric_for_best_model", "loss"}, "").best.has_value()) << "a run that evaluates nothing";
  EXPECT_THAT(find({"--metric_for_best_model", "ppl"}).lost, HasSubstr("chosen by another metric than eval_ppl"));
}

TEST(Resume, AnotherOptimizersCheckpointIsRefusedByItsStates) {
  io::Manifest manifest;
  manifest.optimizer = true;
  manifest.files.resize(2);
  manifest.files[0].datasets = {{.path = "/model/wte.weight"}, {.path = "/optimizer/exp_avg/wte.weight"}};
  manifest.files[1].datasets = {{.path = "/optimizer/exp_avg_sq/wte.weight"}};
  const auto require = [&](const train::OptimizerOptions& now) { require_states(manifest, "here", now); };
  EXPECT_NO_THROW(require({}));
  EXPECT_NO_THROW(require({.kind = train::OptimizerKind::sgd})) << "needs none";
  try {
    require({.kind = train::OptimizerKind::sgd, .momentum = 0.9});
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(ExitCode::usage));
    EXPECT_THAT(error.line(), HasSubstr("it has exp_avg, exp_avg_sq, and sgd needs momentum_buffer"));
    EXPECT_THAT(error.line(), HasSubstr("--resume_only_model true"));
  }
  manifest.training = R"({"optimizer": {"name": "adamw"}})";
  train::TrainerOptions now;
  now.optimizer.kind = train::OptimizerKind::sgd;
  const auto changes = changed_settings(manifest, training_settings(now));
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].name + changes[0].before + changes[0].after, "optim\"adamw\"\"sgd\"");
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
