// SPDX-License-Identifier: Apache-2.0
// The records of a run as events: tags, texts, and the option that asks for them.
#include <cmath>
#include <nlohmann/json.hpp>

#include "jobs/cli/session/tensorboard.hpp"
#include "tests/io/files.hpp"
#include "tests/io/tensorboard/events.hpp"
#include "tests/jobs/parse.hpp"

namespace tessera::jobs {
namespace {

using test::ReadEvent;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::vector<ReadEvent> events_of(const test::TempDir& directory) {
  return test::read_events(test::bytes_of(directory / directory.names().at(0)));
}

TEST(TensorBoard, TagsAreThoseOfTheTrainer) {
  const test::TempDir directory;
  TensorBoardLog log(directory.path(), "host", parsed({"train", "--seed", "7"}).options, {});
  log.record({{"loss", 2.5}, {"grad_norm", "NaN"}, {"learning_rate", 1e-3}, {"global_step", 4}, {"max_steps", 9}});
  log.record({{"eval_loss", 2.0}, {"eval_code_loss", "Infinity"}, {"global_step", 4}});
  log.record({{"aux_loss_layers", {1.5, 2.5}}, {"global_step", 5}});
  log.record({{"resume", "here"}, {"global_step", 5}});
  log.record({{"loss", 2.5}});
  const std::vector<ReadEvent> events = events_of(directory);
  ASSERT_EQ(events.size(), 5u) << "version, options, and three records with numbers";
  EXPECT_THAT(events[1].texts.at("args/text_summary"), HasSubstr("| seed | 7 | command line |\n"));
  EXPECT_EQ(events[2].step, 4);
  EXPECT_EQ(events[2].scalars.size(), 3u);
  EXPECT_EQ(events[2].scalars.at("train/loss"), 2.5f);
  EXPECT_TRUE(std::isnan(events[2].scalars.at("train/grad_norm")));
  EXPECT_EQ(events[2].scalars.at("train/learning_rate"), 1e-3f);
  EXPECT_EQ(events[3].scalars.at("eval/loss"), 2.0f);
  EXPECT_TRUE(std::isinf(events[3].scalars.at("eval/code_loss")));
  EXPECT_THAT(events[4].scalars,
              ElementsAre(Pair("train/aux_loss_layers/0", 1.5f), Pair("train/aux_loss_layers/1", 2.5f)));
}

TEST(TensorBoard, TextIsShownAsItIs) {
  const test::TempDir directory;
  TensorBoardLog log(directory.path(), "host", parsed({"train"}).options, {});
  log.text("model_config", "{\n}\n");
  log.record({{"samples", {{{"prompt", "a"}, {"text", "a *b*\nc"}}}}, {"global_step", 3}});
  const std::vector<ReadEvent> events = events_of(directory);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[2].texts.at("model_config/text_summary"), "    {\n    }\n    ");
  EXPECT_EQ(events[3].texts.at("samples/0/text_summary"), "    a *b*\n    c");
  EXPECT_EQ(events[3].step, 3);
}

TEST(TensorBoard, ThatCannotBeWrittenIsAWarning) {
  const test::TempDir directory;
  const std::string file = directory.file("file", "x");
  testing::internal::CaptureStderr();
  TensorBoardLog log(file + "/runs", "host", parsed({"train"}).options, {});
  log.record({{"loss", 2.5}, {"global_step", 4}});
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_THAT(printed, HasSubstr("warning W051"));
  EXPECT_EQ(std::ranges::count(printed, '\n'), 1) << printed;
}

TEST(ReportTo, IsTensorboardUnlessSaidOtherwise) {
  const auto reports = [](std::vector<std::string> values) {
    values.insert(values.begin(), {"train", "--report_to"});
    return reports_to_tensorboard(parsed(values).options);
  };
  EXPECT_TRUE(reports_to_tensorboard(parsed({"train"}).options));
  EXPECT_TRUE(reports({"tensorboard"}));
  EXPECT_TRUE(reports({"all"}));
  EXPECT_FALSE(reports({"none"}));
  EXPECT_FALSE(reports({"jsonl"}));
  EXPECT_FALSE(reports_to_tensorboard(options_of_yaml("report_to: none\n")));
  EXPECT_EQ(error_line({"train", "--report_to", "none", "tensorboard"}),
            "--report_to none cannot be combined with other values [command line]. Drop none, or the others");
  for (const char* service : {"wandb", "swanlab", "mlflow"}) {
    EXPECT_THAT(error_line({"train", "--report_to", service}),
                testing::AllOf(HasSubstr(std::string("--report_to ") + service), HasSubstr("tensorboard")));
    EXPECT_THAT(error_line({"train", "--report_to", "tensorboard", service}), HasSubstr(service));
  }
}

}  // namespace
}  // namespace tessera::jobs
