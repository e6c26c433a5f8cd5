// Pure parts of a run: shares of cores, lines, JSON, lengths, strategies from options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "jobs/cli/options/model_presets.hpp"
#include "jobs/cli/session/gemm_peak.hpp"
#include "jobs/cli/session/gpu_choices.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "jobs/cli/session/log_lines.hpp"
#include "jobs/cli/session/resume.hpp"
#include "jobs/cli/session/run_directory.hpp"
#include "jobs/cli/session/setup.hpp"
#include "jobs/cli/session/trace.hpp"
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

Options options_of(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "train");
  return parsed(std::move(arguments)).options;
}

TEST(Length, LastPartialBatchCounts) {
  const RunLength length = run_length(options_of({"--num_train_epochs", "2"}), 10, 4);
  EXPECT_EQ(length.total_steps, 6);
  std::int64_t samples = 0;
  for (std::int64_t step = 0; step < length.total_steps; ++step) samples += length.next(samples, 4);
  EXPECT_EQ(samples, 20);
  EXPECT_EQ(run_length(options_of({"--max_steps", "7"}), 10, 4).total_steps, 7);
  EXPECT_EQ(run_length(options_of({"--num_train_epochs", "0.5"}), 10, 1).total_steps, 5);
  EXPECT_THROW((void)run_length(options_of({"--num_train_epochs", "0"}), 10, 4), Error);
}

TEST(Length, GoesOnAfterAResume) {
  RunLength same = run_length(options_of({"--num_train_epochs", "2"}), 10, 4);
  same.resume(4, 14, 4);
  EXPECT_EQ(same.total_steps, 6);
  RunLength smaller =
      run_length(options_of({"--num_train_epochs", "2"}), 10, 2);  // after four steps of 4, 4, 2 and 4 samples
  smaller.resume(4, 14, 2);
  EXPECT_EQ(smaller.total_steps, 4 + 3);
  std::int64_t samples = 14;
  for (int step = 4; step < 7; ++step) samples += smaller.next(samples, 2);
  EXPECT_EQ(samples, 20);
}

template <class F>
std::string refused(const F& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(ExitCode::usage)) << error.line();
    return error.line();
  }
  ADD_FAILURE() << "not refused";
  return "";
}

TEST(Setup, Optimizers) {
  const auto of = [](std::vector<std::string> arguments) {
    return optimizer_options(options_of(std::move(arguments)));
  };
  for (const char* spelling : {"adamw", "adamw_torch", "adamw_torch_fused"})
    EXPECT_EQ(of({"--optim", spelling, "--adam_beta2", "0.95"}).kind, train::OptimizerKind::adamw) << spelling;
  for (const char* spelling : {"adamw_8bit", "adamw_bnb_8bit"})
    EXPECT_EQ(of({"--optim", spelling}).kind, train::OptimizerKind::adamw_8bit) << spelling;
  const train::OptimizerOptions sgd =
      of({"--optim", "sgd", "--sgd_momentum", "0.9", "--nesterov", "--weight_decay", "0.1"});
  EXPECT_EQ(sgd.kind, train::OptimizerKind::sgd);
  EXPECT_EQ(sgd.momentum, 0.9);
  EXPECT_TRUE(sgd.nesterov);
  EXPECT_EQ(sgd.weight_decay, 0.1);
  EXPECT_EQ(train::optimizer_states(sgd), (std::vector<StateSpec>{{.name = "momentum_buffer"}}));
  EXPECT_TRUE(train::optimizer_states(of({"--optim", "sgd"})).empty());
  EXPECT_THAT(refused([&] { (void)of({"--momentum", "0.9"}); }), HasSubstr("--momentum is for --optim sgd"));
  EXPECT_THAT(refused([&] { (void)of({"--optim", "sgd", "--adam_beta1", "0.8"}); }), HasSubstr("--adam_beta1"));
  EXPECT_THAT(refused([&] { (void)of({"--optim", "sgd", "--nesterov"}); }), HasSubstr("--momentum is 0"));
}

TEST(Setup, BatchEquation) {
  const Options bad = options_of(
      {"--global_batch_size", "96", "--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "5"});
  const std::string line = refused([&] { (void)batch_of(bad, 8); });
  EXPECT_THAT(line, HasSubstr("global_batch_size 96 != micro 4 x accumulation 5 x ranks 8 = 160"));
  EXPECT_THAT(line, HasSubstr("gradient_accumulation_steps=3"));
  EXPECT_THAT(line, HasSubstr("--global_batch_size: command line"));
  EXPECT_EQ(batch_of(options_of({"--global_batch_size", "10", "--per_device_train_batch_size", "2"}), 2).accumulation,
            3);
}

TEST(Setup, StrategiesAndPolicies) {
  EXPECT_EQ(strategy_of(options_of({"--zero_stage", "3"}), 4, 4).mesh, Mesh(1, 4));
  EXPECT_EQ(strategy_of(options_of({"--zero_stage", "0"}), 4, 4).mesh, Mesh(4, 1));
  EXPECT_EQ(strategy_of(options_of({"--sharding_strategy", "HYBRID_SHARD", "--shard_group_size", "2"}), 4, 4).mesh,
            Mesh(2, 2));
  EXPECT_EQ(strategy_of(options_of({"--sharding_strategy", "HYBRID_SHARD"}), 8, 4).mesh, Mesh(2, 4));
  const shard::ShardPolicy policy =
      strategy_of(options_of({"--forward_prefetch", "3", "--reduce_gradients", "last", "--gradient_checkpointing",
                              "full", "--no-reshard_after_forward"}),
                  2, 2)
          .policy;
  EXPECT_EQ(policy.forward_prefetch, 3);
  EXPECT_EQ(policy.reduce, shard::Reduce::last);
  EXPECT_TRUE(policy.recompute);
  EXPECT_FALSE(policy.reshard_after_forward);
}

TEST(Setup, Refusals) {
  EXPECT_THAT(refused([] { (void)strategy_of(options_of({"--shard_group_size", "3"}), 4, 4); }), HasSubstr("3"));
  EXPECT_THAT(refused([] {
                (void)strategy_of(options_of({"--shard_group_size", "8"}), 4, 4);
              }),
              HasSubstr("larger than the world"));
  EXPECT_THAT(refused([] {
                (void)strategy_of(options_of({"--shard_group_size", "2", "--zero_stage", "0"}), 4, 4);
              }),
              HasSubstr("shards nothing"));
  EXPECT_THAT(refused([] { (void)strategy_of(options_of({"--reproducible"}), 3, 3); }), HasSubstr("power of two"));
  EXPECT_THAT(refused([] {
                check_options(options_of({"--reproducible", "--reduce_gradients", "last"}));
              }),
              HasSubstr("reduce_gradients"));
  EXPECT_THAT(refused([] {
                check_options(options_of({"--gemm_choice", "measured", "--reproducible"}));
              }),
              HasSubstr("timing chooses"));
  EXPECT_THAT(refused([] { check_options(options_of({"--attention", "cudnn"})); }), HasSubstr("bf16 or fp16"));
  EXPECT_THAT(refused([] {
                check_options(options_of({"--attention", "cudnn", "--bf16", "--packing"}));
              }),
              HasSubstr("packed documents"));
  for (const char* word : {"cudnn", "measured"})
    EXPECT_THAT(refused([&] {
                  choose_attention(options_of({"--attention", word, "--bf16"}), host_device);
                }),
                HasSubstr("on the CPU"));
  EXPECT_THAT(refused([] {
                check_options(options_of({"--attention", "measured", "--reproducible"}));
              }),
              HasSubstr("timing chooses"));
  EXPECT_THAT(refused([] {
                check_options(options_of({"--gemm_choice_file", "x"}));
              }),
              HasSubstr("is for --gemm_choice measured"));
  EXPECT_THAT(refused([] { check_options(options_of({"--eval_steps", "5"})); }), HasSubstr("validation data"));
  EXPECT_THAT(refused([] { check_options(options_of({"--baseline", "bigram"})); }), HasSubstr("validation data"));
  EXPECT_THAT(refused([] {
                check_options(options_of({"--val_dataset", "x", "--split_dataset_ratio", "0.1"}));
              }),
              HasSubstr("Keep one"));
  const models::Model model = models::make(model_preset_config("small"), "small");
  EXPECT_THAT(refused([&] { (void)sequence_length(options_of({"--max_length", "4000"}), model); }), HasSubstr("1024"));
  EXPECT_EQ(sequence_length(options_of({}), model), 1024);
}

TEST(Setup, BuiltInShapesHaveTheirSizes) {
  const std::map<std::string, std::int64_t> sizes = {{"gpt2", 124'439'808},
                                                     {"gpt2-medium", 354'823'168},
                                                     {"gpt2-large", 774'030'080},
                                                     {"gpt2-xl", 1'557'611'200},
                                                     {"small", 11'139'072},
                                                     {"llama-3.2-1b", 1'235'814'400},
                                                     {"llama-3.2-3b", 3'212'749'824},
                                                     {"llama-3.1-8b", 8'030'261'248},
                                                     {"llama-3.1-70b", 70'553'706'496},
                                                     {"qwen2.5-0.5b", 494'032'768},
                                                     {"qwen2.5-1.5b", 1'543'714'304},
                                                     {"qwen2.5-3b", 3'085'938'688},
                                                     {"qwen2.5-7b", 7'615'616'512},
                                                     {"qwen2.5-14b", 14'770'033'664},
                                                     {"qwen2.5-32b", 32'763'876'352},
                                                     {"qwen2.5-72b", 72'706'203'648},
                                                     {"qwen3-0.6b", 596'049'920},
                                                     {"qwen3-1.7b", 1'720'574'976},
                                                     {"qwen3-4b", 4'022'468'096},
                                                     {"qwen3-8b", 8'190'735'360},
                                                     {"qwen3-14b", 14'768'307'200},
                                                     {"qwen3-32b", 32'762'123'264},
                                                     {"qwen3-30b-a3b", 30'532'122'624},
                                                     {"mixtral-8x7b", 46'702'792'704}};
  for (const auto& [word, size] : sizes)
    EXPECT_EQ(models::make(model_preset_config(word), word).num_params(), size) << word;
  EXPECT_EQ(std::count(model_preset_names, model_preset_names + std::strlen(model_preset_names), '|') + 1,
            static_cast<std::ptrdiff_t>(sizes.size()));
  EXPECT_EQ(models::make(model_preset_config("small"), "small").vocab, 256);
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
