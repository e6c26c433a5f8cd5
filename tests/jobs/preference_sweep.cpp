// SPDX-License-Identifier: Apache-2.0
// Every loss of preferences that has figures of TRL (tests/models/golden/preferences), as `tessera train` runs it, on
// ranks as threads: on 1 to 4 ranks at every ZeRO stage, TRL's figures, and the same bits at all stages; the same
// losses with LoRA and QLoRA on 3 ranks, the same bits at all stages. Samples end to end have TRL's figures too.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "jobs/cli/commands/commands.hpp"
#include "runtime/base/log.hpp"
#include "runtime/comm/world.hpp"
#include "tests/io/files.hpp"
#include "tests/jobs/parse.hpp"

namespace tessera::jobs {
namespace {

const std::string golden = std::string(TESSERA_SOURCE_DIR) + "/tests/models/golden/preferences";

/// Figures by "step name", the step of an evaluation being "eval".
using Figures = std::map<std::string, double>;

/// A run of TRL: its options, and its figures.
struct GoldenRun {
  std::string name;
  std::vector<std::string> options;
  Figures figures;
  friend void PrintTo(const GoldenRun& run, std::ostream* out) { *out << run.name; }
};

std::vector<GoldenRun> runs_of(const std::string& file) {
  std::vector<GoldenRun> runs;
  std::ifstream lines(golden + "/" + file);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string run, step, name;
    words >> run >> step;
    if (run == "#") continue;
    if (step == "options") {
      runs.push_back({.name = run, .options = {}, .figures = {}});
      while (words >> name) runs.back().options.push_back(name);
    } else if (words >> name) {
      words >> runs.back().figures[step + " " + name];
    }
  }
  return runs;
}

bool has(const std::vector<std::string>& options, const char* option) {
  return std::ranges::find(options, option) != options.end();
}

bool is_result(const std::string& name) {
  return name == "loss" || name == "grad_norm" || name.starts_with("rewards/") || name.starts_with("logps/") ||
         name == "kl" || name == "nll_loss" || name == "accuracy" || name == "margin" || name.ends_with("_reward") ||
         name == "aux_loss";
}

/// What a run logs, without times and memory, and what it saves.
struct Outcome {
  Figures figures;
  std::map<std::string, std::string> weights;  // bytes by the name of the file
  bool operator==(const Outcome&) const = default;
};

Outcome outcome_of(const std::string& directory) {
  Outcome outcome;
  std::ifstream lines(directory + "/logging.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line);
    const bool eval = record.contains("eval_loss");
    if (!record.contains("global_step") || !(eval || record.contains("loss"))) continue;
    const std::string step = eval ? "eval" : std::to_string(record["global_step"].get<std::int64_t>());
    for (const auto& [key, value] : record.items())
      if (const std::string name = eval && key.starts_with("eval_") ? key.substr(5) : key; is_result(name))
        outcome.figures[step + " " + name] = value.get<double>();
  }
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    if (const std::string name = entry.path().filename().string(); name.ends_with("model.safetensors"))
      outcome.weights[name] = test::bytes_of(entry.path().string());
  return outcome;
}

/// TRL's rewards and KL are differences of fp32 sums of about -150, whose steps are 1.5e-5.
void expect_figures_of_trl(const GoldenRun& run, const Figures& ours) {
  EXPECT_GE(run.figures.size(), 30U);
  for (const auto& [key, value] : run.figures) {
    const std::string name = key.substr(key.find(' ') + 1);
    const double least = name.starts_with("rewards") || name == "kl" ? 2 : 1;
    const auto found = ours.find(key);
    ASSERT_TRUE(found != ours.end()) << key;
    EXPECT_NEAR(found->second, value, 1e-5 * std::max(std::abs(value), least)) << key;
  }
  for (const auto& [key, value] : ours) {
    const std::string name = key.substr(key.find(' ') + 1);
    const bool of_trl = name.starts_with("logps/") || (name.starts_with("rewards/") && name != "rewards/accuracies");
    if (of_trl) { EXPECT_TRUE(run.figures.contains(key)) << key << " " << value << ", and not there"; }
  }
}

class PreferenceSweep : public testing::TestWithParam<GoldenRun> {
 protected:
  PreferenceSweep() : home_(std::filesystem::current_path()), folder_(test::TempDir::Storage::memory) {
    log::set_level(log::Level::error);
    std::filesystem::copy(golden, folder_.path(), std::filesystem::copy_options::recursive);
    for (const char* directory : {"", "reward", "experts"})
      for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
        std::filesystem::copy(std::string(TESSERA_SOURCE_DIR) + "/jobs/examples/chat/" + name, folder_ / directory);
    std::filesystem::current_path(folder_.path());
  }
  ~PreferenceSweep() override { std::filesystem::current_path(home_); }

  [[nodiscard]] static std::vector<std::string> options() {
    std::vector<std::string> options = GetParam().options;
    const auto add = [&](const char* name, const char* value) {
      if (!has(options, name)) options.insert(options.end(), {name, value});
    };
    const bool labelled = has(options, "kto");
    add("--rlhf_type", "rm");
    add("--model", ".");
    add("--dataset", labelled ? "labelled.jsonl" : "pairs.jsonl");
    add("--val_dataset", labelled ? "labelled.valid.jsonl" : "valid.jsonl");
    return options;
  }

  [[nodiscard]] Outcome train(int ranks, int stage, const std::vector<std::string>& options) const {
    std::vector<std::string> arguments = {"train",
                                          "--stage",
                                          "rlhf",
                                          "--dataset_shuffle",
                                          "false",
                                          "--learning_rate",
                                          "1e-3",
                                          "--lr_scheduler_type",
                                          "constant",
                                          "--adam_beta2",
                                          "0.999",
                                          "--weight_decay",
                                          "0",
                                          "--logging_steps",
                                          "1",
                                          "--max_length",
                                          "256",
                                          "--mixed_precision",
                                          "no",
                                          "--add_version",
                                          "false",
                                          "--cache_dir",
                                          "cache",
                                          "--global_batch_size",
                                          "4",
                                          "--max_steps",
                                          "5",
                                          "--eval_steps",
                                          "5",
                                          "--save_strategy",
                                          "no",
                                          "--output_dir",
                                          "out",
                                          "--zero_stage",
                                          std::to_string(stage)};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Invocation invocation = parsed(arguments);
    std::atomic<int> failed = 0;
    run_local(ranks, [&](World& world) {
      const Call call{invocation, arguments, std::chrono::steady_clock::now()};
      if (train_command(call, world) != 0) ++failed;
    });
    EXPECT_EQ(failed, 0);
    const Outcome outcome = outcome_of("out");
    std::filesystem::remove_all("out");
    return outcome;
  }

  [[nodiscard]] Outcome same_at_all_stages(int ranks, const std::vector<std::string>& options) const {
    Outcome first = train(ranks, 0, options);
    EXPECT_GE(first.figures.size(), 30U);
    EXPECT_EQ(first.weights.size(), 1U);
    for (const int stage : {1, 2, 3}) {
      const Outcome other = train(ranks, stage, options);
      EXPECT_EQ(other.figures, first.figures) << "stage " << stage << " on " << ranks << " ranks";
      EXPECT_TRUE(other.weights == first.weights) << "stage " << stage << " on " << ranks << " ranks saves others";
    }
    return first;
  }

 private:
  std::filesystem::path home_;
  test::TempDir folder_;
};

TEST_P(PreferenceSweep, HasTheFiguresOfTrlAndTheSameBitsAtAllStages) {
  for (const int ranks : {1, 2, 3, 4}) {
    SCOPED_TRACE(ranks);
    expect_figures_of_trl(GetParam(), same_at_all_stages(ranks, options()).figures);
  }
}

TEST_P(PreferenceSweep, SamplesEndToEndHaveTheSameFigures) {
  std::vector<std::string> flat = options();
  flat.insert(flat.end(), {"--padding_free", "true"});
  for (const int ranks : {1, 3}) {
    SCOPED_TRACE(ranks);
    expect_figures_of_trl(GetParam(), same_at_all_stages(ranks, flat).figures);
  }
}

TEST_P(PreferenceSweep, LoraAndQloraHaveTheSameBitsAtAllStages) {
  if (has(GetParam().options, "--adapters")) return;  // which are LoRA
  std::vector<std::string> lora = options();
  lora.insert(lora.end(), {"--tuner_type", "lora"});
  (void)same_at_all_stages(3, lora);
  lora.insert(lora.end(), {"--quant_method", "bnb", "--quant_bits", "4"});
  (void)same_at_all_stages(3, lora);
}

std::string name_of_run(const testing::TestParamInfo<GoldenRun>& run) { return run.param.name; }

INSTANTIATE_TEST_SUITE_P(golden, PreferenceSweep, testing::ValuesIn(runs_of("golden.txt")), name_of_run);
INSTANTIATE_TEST_SUITE_P(losses, PreferenceSweep, testing::ValuesIn(runs_of("losses.txt")), name_of_run);
INSTANTIATE_TEST_SUITE_P(kto, PreferenceSweep, testing::ValuesIn(runs_of("kto.txt")), name_of_run);
INSTANTIATE_TEST_SUITE_P(reward, PreferenceSweep, testing::ValuesIn(runs_of("reward.txt")), name_of_run);
INSTANTIATE_TEST_SUITE_P(experts, PreferenceSweep, testing::ValuesIn(runs_of("experts.txt")), name_of_run);

}  // namespace
}  // namespace tessera::jobs
