// SPDX-License-Identifier: Apache-2.0
// The learning rate of resumed runs, against the formulas of the schedules: other batches, data and lengths.
#include "jobs/cli/session/schedule_state.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "jobs/cli/session/resume.hpp"
#include "runtime/base/log.hpp"
#include "tests/jobs/parse.hpp"

namespace tessera::jobs {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr double peak_rate = 2e-3, least_rate = 1e-4;

/// Hugging Face's formulas: warm-up w, T in all, decay d, at position s.
struct Formula {
  std::string kind;
  double w = 0, T = 0, d = 0;
  [[nodiscard]] double operator()(double s) const {
    if (s < w) return peak_rate * s / w;
    const double p = (s - w) / (T - w), half = 0.5 * (1 + std::cos(std::numbers::pi * std::min(1.0, p)));
    if (kind == "linear") return peak_rate * std::max(0.0, 1 - p);
    if (kind == "cosine") return peak_rate * half;
    if (kind == "cosine_with_min_lr") return least_rate + (peak_rate - least_rate) * half;
    if (kind == "wsd")
      return s < T - d ? peak_rate : least_rate + (peak_rate - least_rate) * std::max(0.0, (T - s) / d);
    return peak_rate;  // constant
  }
};

std::vector<std::string> arguments(const std::string& kind, std::vector<std::string> more) {
  std::vector<std::string> all = {"train", "--dataset", "d.txt", "--model",  "m",   "--lr_scheduler_type",
                                  kind,    "--lr",      "2e-3",  "--min_lr", "1e-4"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// A run of max_steps steps, without a model: its progress and the rate of each of its updates.
struct FakeRun {
  Options options;
  std::int64_t batch = 0, max_steps = 0;
  Progress progress{};
  DataIdentity data{.tokens = 1000, .samples = 100, .max_length = 10};
  std::vector<double> rates;
  ResumedRate said{};

  FakeRun(const std::vector<std::string>& args, std::int64_t batch_, std::int64_t max_steps_)
      : options(parsed(args).options), batch(batch_), max_steps(max_steps_) {
    progress.schedule = ScheduleState{lr_schedule(options, static_cast<double>(max_steps)), batch};
  }
  /// One that continues from `before`; its checkpoint goes through a manifest.
  FakeRun(const FakeRun& before, const std::vector<std::string>& args, std::int64_t batch_, std::int64_t max_steps_,
          std::int64_t samples_of_data = 100)
      : FakeRun(args, batch_, max_steps_) {
    data.samples = samples_of_data;
    const io::Manifest manifest = before.manifest();
    progress = read_progress(manifest, "here", data, samples_of_data != 100);
    said = resume_rate({&options, &manifest, "here", batch, max_steps, changed_data(manifest, data).empty()}, progress);
  }
  [[nodiscard]] io::Manifest manifest() const {
    io::Manifest made;
    made.training = training_text(progress, data, options);
    return made;
  }
  /// Steps up to `step`, some of which overflow.
  FakeRun& train(std::int64_t step, const std::vector<std::int64_t>& overflows = {}) {
    for (; progress.step < step; ++progress.step) {
      const bool skipped = std::ranges::find(overflows, progress.step) != overflows.end();
      if (!skipped) rates.push_back(progress.schedule->lr.at(progress.step - progress.skipped));
      progress.skipped += skipped ? 1 : 0;
      progress.samples += batch;
      progress.updated_samples += skipped ? 0 : batch;
    }
    return *this;
  }
};

void expect_rates(const FakeRun& run, const Formula& formula, double from) {
  for (std::size_t k = 0; k < run.rates.size(); ++k)
    EXPECT_NEAR(run.rates[k], formula(from + static_cast<double>(k)), 1e-15) << formula.kind << ", update " << k;
}

class EverySchedule : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, EverySchedule, testing::Values("constant", "linear", "cosine", "cosine_with_min_lr", "wsd"));

// Batches of 8 samples a rank on 1, 4, 3 and 1 ranks: 8, 32, 24 and 8.
TEST_P(EverySchedule, GoesOnFromItsProgressOnOtherNumbersOfRanks) {
  const std::string kind = GetParam();
  const auto args = arguments(kind, {"--max_steps", "60"});
  const auto with_warmup = arguments(kind, {"--max_steps", "60", "--warmup_steps", "6"});
  FakeRun one(with_warmup, 8, 60);
  one.train(20);
  expect_rates(one, {kind, 6, 60, 12}, 0);
  FakeRun four(one, args, 32, 60);  // 160 samples: 5 updates of 32, and 40 steps are left
  four.train(31);
  expect_rates(four, {kind, 6 * 8 / 32., 45, 12 * 8 / 32.}, 5);
  FakeRun three(four, args, 24, 60);  // 160 + 11*32 = 512 samples; 29 steps are left
  three.train(40);
  expect_rates(three, {kind, 6 * 8 / 24., 512 / 24. + 29, 12 * 8 / 24.}, 512 / 24.);
  FakeRun again(three, args, 8, 60);  // 512 + 9*24 = 728 samples; 20 steps are left
  again.train(60);
  expect_rates(again, {kind, 6, 91 + 20, 12}, 91);
  EXPECT_EQ(again.progress.updated_samples, 728 + 20 * 8);
}

TEST_P(EverySchedule, WithTheSameBatchDataAndLengthHasTheSameBits) {
  const std::string kind = GetParam();
  const auto args = arguments(kind, {"--max_steps", "50", "--warmup_ratio", "0.2"});
  FakeRun whole(args, 8, 50);
  whole.train(50);
  for (const std::int64_t cut : {3, 10, 27, 49}) {  // in the warm-up, at its end, behind it
    FakeRun first(args, 8, 50);
    first.train(cut);
    FakeRun rest(first, args, 8, 50);
    EXPECT_THAT(rest.said.lines, IsEmpty());
    EXPECT_EQ(rest.manifest().training, first.manifest().training);
    rest.train(50);
    EXPECT_EQ(rest.rates, std::vector<double>(whole.rates.begin() + cut, whole.rates.end())) << kind << cut;
  }
  // Also once a run goes on with another batch, by which positions are no whole numbers.
  FakeRun first(args, 8, 50);
  first.train(7);
  FakeRun other(first, args, 24, 50);
  other.train(50);
  FakeRun part(first, args, 24, 50);
  part.train(29);
  FakeRun rest(part, args, 24, 50);
  EXPECT_THAT(rest.said.lines, IsEmpty());
  rest.train(50);
  EXPECT_EQ(rest.rates, std::vector<double>(other.rates.begin() + 22, other.rates.end())) << kind;
}

TEST_P(EverySchedule, GoesOnWithOtherDataAndOtherLengths) {
  const std::string kind = GetParam();
  const auto args = arguments(kind, {});
  FakeRun first(args, 8, 40);
  first.train(10);
  // Other data: 80 samples are 10 updates; the data begin again, the schedule does not.
  FakeRun other_data(first, args, 8, 40, 77);
  EXPECT_EQ(other_data.progress.samples, 0);
  other_data.train(40);
  expect_rates(other_data, {kind, 0, 40, 8}, 10);
  EXPECT_EQ(other_data.progress.updated_samples, 320);
  FakeRun longer(first, args, 8, 100);  // the decay keeps its length
  longer.train(100);
  expect_rates(longer, {kind, 0, 100, 8}, 10);
  FakeRun shorter(first, args, 8, 13);
  shorter.train(13);
  expect_rates(shorter, {kind, 0, 13, 8}, 10);
  FakeRun over(first, args, 8, 4);
  over.train(4);
  EXPECT_THAT(over.rates, IsEmpty());
  if (kind != "cosine") return;
  ASSERT_EQ(longer.said.lines.size(), 1u);
  EXPECT_THAT(longer.said.lines[0],
              HasSubstr(strfmt("learning rate %.4g -> %.4g: the schedule goes on at 10 of 100 updates",
                               peak_rate * 0.5 * (1 + std::cos(std::numbers::pi / 4)),
                               peak_rate * 0.5 * (1 + std::cos(std::numbers::pi / 10)))));
}

TEST(ResumedSchedule, AFinishedWarmUpNeverReturns) {
  for (const char* steps : {"8", "3", "30"}) {
    const auto before = arguments("cosine", {"--warmup_steps", "8"});
    const auto args = arguments("cosine", {"--warmup_steps", steps});
    FakeRun first(before, 8, 60);
    first.train(9);
    const int warnings = log::warnings();
    FakeRun rest(first, args, 24, 60);
    EXPECT_EQ(log::warnings(), warnings) << "the checkpoint is not loaded yet";
    EXPECT_EQ(rest.said.warmup_ignored.empty(), std::string(steps) != "30") << "it asks for a warm-up of 30";
    rest.train(60);
    expect_rates(rest, {"cosine", 8 * 8 / 24., 3 + 51, 0}, 3);
    EXPECT_LT(rest.rates.front(), peak_rate);
    EXPECT_TRUE(std::ranges::is_sorted(rest.rates, std::greater{}));
  }
  // Partial batches at the end of epochs: fewer samples than updates times the batch.
  FakeRun partial(arguments("linear", {"--warmup_steps", "8"}), 8, 60);
  partial.train(8);
  partial.progress.updated_samples -= 5;
  FakeRun rest(partial, arguments("linear", {}), 16, 60);
  EXPECT_EQ(rest.train(60).rates.front(), peak_rate);
}

TEST(ResumedSchedule, AnUnfinishedWarmUpKeepsItsSamplesUnlessItIsGiven) {
  FakeRun first(arguments("linear", {"--warmup_steps", "20"}), 8, 60);
  first.train(10);
  FakeRun kept(first, arguments("linear", {}), 16, 60);
  expect_rates(kept.train(60), {"linear", 10, 55, 0}, 5);
  FakeRun given(first, arguments("linear", {"--warmup_steps", "7"}), 16, 60);
  expect_rates(given.train(60), {"linear", 7, 55, 0}, 5);
  FakeRun ratio(first, arguments("linear", {"--warmup_ratio", "0.4"}), 16, 60);
  expect_rates(ratio.train(60), {"linear", 22, 55, 0}, 5);
  FakeRun decay(FakeRun(arguments("wsd", {"--lr_decay_steps", "30"}), 8, 60).train(10),
                arguments("wsd", {"--lr_decay_steps", "12"}), 16, 60);
  expect_rates(decay.train(60), {"wsd", 0, 55, 12}, 5);
}

TEST(ResumedSchedule, SkippedUpdatesDoNotCount) {
  const auto args = arguments("cosine", {});
  FakeRun first(args, 8, 60);
  first.train(22, {0, 5});  // 20 updates
  FakeRun same(first, args, 8, 60);
  expect_rates(same.train(60), {"cosine", 0, 60, 0}, 20);
  FakeRun other(first, args, 16, 60);
  other.train(40, {30});
  expect_rates(other, {"cosine", 0, 10 + 38, 0}, 10);
  FakeRun again(other, args, 16, 60);
  EXPECT_THAT(again.said.lines, IsEmpty());
  expect_rates(again.train(60), {"cosine", 0, 48, 0}, 10 + 17);
}

TEST(ResumedSchedule, OfOlderCheckpoints) {
  const auto args = arguments("linear", {"--warmup_steps", "4"});
  FakeRun first(args, 8, 40);
  first.train(20);
  nlohmann::json training = nlohmann::json::parse(first.manifest().training);
  training.erase("schedule");
  training.erase("updated_samples");
  io::Manifest old;
  old.training = training.dump();
  old.run_metadata = R"({"settings": {"learning_rate": 2e-3, "lr_scheduler_type": "linear", "warmup_steps": 4,
                         "total_steps": 40, "global_batch_size": 8}})";
  const auto resumed = [&](std::int64_t batch, Progress& progress) {
    progress = read_progress(old, "here", first.data, false);
    return resume_rate({&first.options, &old, "here", batch, 40, true}, progress);
  };
  Progress progress;
  EXPECT_EQ(resumed(8, progress).unknown, "");
  EXPECT_EQ(progress.schedule->lr.at(20), first.progress.schedule->lr.at(20));
  EXPECT_THAT(resumed(32, progress).unknown, HasSubstr("--ignore_data_skip"));
  EXPECT_DOUBLE_EQ(progress.schedule->lr.at(20), (Formula{"linear", 1, 25, 0})(5));
  old.run_metadata = "{}";  // says nothing
  EXPECT_THAT(resumed(32, progress).unknown, HasSubstr("batch, schedule and length"));
  EXPECT_DOUBLE_EQ(progress.schedule->lr.at(20), (Formula{"linear", 4, 25, 0})(5));
  EXPECT_THAT(resumed(8, progress).lines.at(0), HasSubstr("learning rate unknown -> "));
  EXPECT_DOUBLE_EQ(progress.schedule->lr.at(20), (Formula{"linear", 4, 40, 0})(20));
}

TEST(ResumedSchedule, RefusesValuesThatNoRunHas) {
  FakeRun first(arguments("wsd", {"--warmup_steps", "4"}), 8, 40);
  first.train(20);
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, nlohmann::json>>{{"global_batch_size", 0},
                                                                     {"global_batch_size", "8"},
                                                                     {"total_steps", -1},
                                                                     {"warmup_steps", 1e300},
                                                                     {"lr_decay_steps", nullptr},
                                                                     {"lr_scheduler_type", "zigzag"},
                                                                     {"lr_scheduler_type", 3},
                                                                     {"from_step", 21},
                                                                     {"from_update", 1e15}}) {
    nlohmann::json training = nlohmann::json::parse(first.manifest().training);
    training["schedule"][key] = value;
    io::Manifest damaged;
    damaged.training = training.dump();
    EXPECT_THROW((void)read_progress(damaged, "here", first.data, false), Error) << key << " " << value;
  }
}

}  // namespace
}  // namespace tessera::jobs
