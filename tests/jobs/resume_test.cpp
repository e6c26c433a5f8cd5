// SPDX-License-Identifier: Apache-2.0
// What a resume reads: progress, settings that differ, the best checkpoint, states.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "jobs/cli/session/best_checkpoint.hpp"
#include "jobs/cli/session/resume.hpp"
#include "tests/io/files.hpp"
#include "tests/jobs/parse.hpp"

namespace tessera::jobs {
namespace {

using testing::HasSubstr;

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

}  // namespace
}  // namespace tessera::jobs
