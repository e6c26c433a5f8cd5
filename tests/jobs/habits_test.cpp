// SPDX-License-Identifier: Apache-2.0
// Habits of users of transformers 5, LLaMA-Factory, axolotl, TRL and ms-swift: shares of all steps, fsdp,
// options that nothing reads, names of data sets of a hub, and help.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "jobs/cli/options/docs_generator.hpp"
#include "jobs/cli/options/model_cache.hpp"
#include "jobs/cli/session/adapter_config.hpp"
#include "jobs/cli/session/best_checkpoint.hpp"
#include "jobs/cli/session/data_source.hpp"
#include "jobs/cli/session/setup.hpp"
#include "tests/jobs/parse.hpp"

namespace tessera::jobs::habits {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Options options_of(std::vector<std::string> arguments, const char* command = "train") {
  arguments.insert(arguments.begin(), command);
  return parsed(arguments).options;
}

template <class F>
std::string refused(const F& body) {
  try {
    body();
  } catch (const Error& error) { return error.line(); }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(Steps, AShareIsOfAllStepsRoundedUp) {
  const Options options = options_of({"--save_steps", "0.25", "--logging_steps=0.07", "--eval_steps", "1.0"});
  EXPECT_EQ(options.steps("save_steps", 10), 3);
  EXPECT_EQ(options.steps("save_steps", 8), 2);
  EXPECT_EQ(options.steps("save_steps", 1), 1);
  EXPECT_EQ(options.steps("logging_steps", 100), 7);
  EXPECT_EQ(options.steps("eval_steps", 100), 1);  // 1 and above are numbers
  EXPECT_EQ(options_of({"--save_steps", "1e3"}).steps("save_steps", 5), 1000);
  EXPECT_EQ(options_of({"--save_steps", "0"}).steps("save_steps", 5), 0);
  EXPECT_EQ(options_of_yaml("warmup_steps: 0.5\n").steps("warmup_steps", 7), 4);
  const auto json = nlohmann::json::parse(options.json());
  EXPECT_EQ(json["save_steps"]["value"], 0.25);
  EXPECT_EQ(json["eval_steps"]["value"], 1);
  for (const char* value : {"1.5", "-1", "-0.1", "0.1x", "half", "0.0001k"})
    EXPECT_THAT(error_line({"train", "--save_steps", value}), HasSubstr("or a share of all steps between 0 and 1"));
  EXPECT_THAT(error_line({"train", "--logging_steps", "0"}), HasSubstr("an integer of at least 1, or a share"));
}

/// A warm-up that is a share of all steps has, with every schedule, the rates of a warm-up of that many steps.
TEST(Steps, AShareOfWarmupIsRightWithEverySchedule) {
  for (const char* kind :
       {"constant", "constant_with_warmup", "linear", "cosine", "cosine_with_min_lr", "wsd", "warmup_stable_decay"})
    for (const char* growth : {"linear", "log"})
      for (const std::int64_t total : {1, 9, 20, 101}) {
        const auto schedule = [&](const char* option, const std::string& value) {
          return lr_schedule(
              options_of({"--lr_scheduler_type", kind, "--min_lr", "0", "--warmup_type", growth, option, value}),
              total);
        };
        const auto number = static_cast<std::int64_t>(std::ceil(0.15 * static_cast<double>(total)));
        const train::LrSchedule share = schedule("--warmup_steps", "0.15"),
                                same = schedule("--warmup_steps", std::to_string(number)),
                                ratio = schedule("--warmup_ratio", "0.15");
        EXPECT_EQ(share.warmup_steps, number) << kind << " " << total;
        for (std::int64_t step = 0; step <= total + 2; ++step) {
          EXPECT_EQ(share.at(step), same.at(step)) << kind << " " << growth << " " << step << " of " << total;
          EXPECT_EQ(share.at(step), ratio.at(step)) << kind << " " << growth << " " << step << " of " << total;
        }
      }
  EXPECT_EQ(lr_schedule(options_of({"--warmup_steps", "0.5", "--warmup_ratio", "0.1"}), 10).warmup_steps, 5);
}

TEST(Steps, KeysOfDeepSpeedHaveNoShares) {
  EXPECT_THAT(error_line_of_yaml("deepspeed:\n  scheduler: {type: WarmupLR, params: {warmup_num_steps: 0.1}}\n"),
              HasSubstr("warmup_num_steps 0.1: expected a number of steps"));
  EXPECT_THAT(error_line({"train", "--lr_scheduler_kwargs", R"({"num_warmup_steps": 0.1})"}), HasSubstr("steps"));
}

TEST(Steps, TheBestModelNeedsACheckpointAtEveryEvaluation) {
  const auto check = [](const char* saves, const char* evaluates, std::int64_t total) {
    const Options options = options_of(
        {"--load_best_model_at_end", "--val_dataset", "a.txt", "--save_steps", saves, "--eval_steps", evaluates});
    check_options(options);
    check_best_steps(options, total);
  };
  check("0.5", "0.25", 100);
  check("4", "2", 7);
  EXPECT_THAT(refused([&] { check("0.5", "10", 100); }), HasSubstr("one is a share of all steps, the other a number"));
  EXPECT_THAT(refused([&] { check("0.2", "0.1", 25); }),
              HasSubstr("--save_steps 0.2 (of 25 steps) 5 is no multiple of --eval_steps 0.1 (of 25 steps) 3"));
  EXPECT_THAT(refused([&] { check("3", "2", 7); }), HasSubstr("--save_steps 3 is no multiple of --eval_steps 2"));
}

std::string strategy_of_yaml(const std::string& text) { return options_of_yaml(text).text("sharding_strategy"); }

TEST(Fsdp, TrueIsFullShardOrWhatFsdpConfigSays) {
  EXPECT_EQ(options_of({"--fsdp"}).text("sharding_strategy"), "zero3");
  EXPECT_EQ(options_of({"--fsdp", "--seed", "1"}).text("sharding_strategy"), "zero3");
  EXPECT_EQ(options_of({"--fsdp", "true"}).text("sharding_strategy"), "zero3");
  EXPECT_EQ(options_of({"--fsdp", "full_shard"}).text("sharding_strategy"), "zero3");
  EXPECT_EQ(options_of({"--fsdp", "shard_grad_op auto_wrap"}).text("sharding_strategy"), "zero2");
  EXPECT_EQ(strategy_of_yaml("fsdp: true\n"), "zero3");
  EXPECT_EQ(options_of_yaml("fsdp: true\n").value("sharding_strategy").source.text, "conf.yaml:1 --fsdp");
  EXPECT_EQ(strategy_of_yaml("fsdp: True\nfsdp_config: {version: 2, reshard_after_forward: true}\n"), "zero3");
  EXPECT_EQ(strategy_of_yaml("fsdp: true\nfsdp_config: {version: 2, reshard_after_forward: false}\n"), "zero2");
  EXPECT_EQ(strategy_of_yaml("fsdp_config: {reshard_after_forward: false}\nfsdp: true\n"), "zero2");
  EXPECT_EQ(strategy_of_yaml("fsdp: true\nfsdp_config: {version: 1, reshard_after_forward: hybrid_shard}\n"),
            "hybrid_shard");
  EXPECT_EQ(strategy_of_yaml("fsdp: [full_shard, auto_wrap, offload]\n"), "zero3");
  EXPECT_EQ(options_of_yaml("fsdp: [full_shard, auto_wrap, offload]\n").text("offload_params"), "cpu");
  EXPECT_EQ(options_of_yaml("fsdp: true\nfsdp_config: {cpu_offload: true}\n").text("offload_params"), "cpu");
  const Options block = options_of({"--fsdp", "--fsdp_config", R"({"reshard_after_forward": false})"});
  EXPECT_EQ(block.text("sharding_strategy"), "zero2");
}

TEST(Fsdp, ABareOptionLeavesAFileAlone) {
  const std::string path = std::filesystem::temp_directory_path() / ("fsdp-" + std::to_string(::getpid()) + ".yaml");
  std::ofstream(path) << "fsdp_config: {reshard_after_forward: false}\nseed: 9\n";
  const Options options = options_of({"--fsdp", path});
  EXPECT_EQ(options.integer("seed"), 9);
  EXPECT_EQ(options.text("sharding_strategy"), "zero2");
  EXPECT_EQ(options_of({path, "--fsdp", "false"}).text("sharding_strategy"), "zero2");
  std::ofstream(path) << "fsdp: full_shard\nzero_stage: 3\n";
  EXPECT_EQ(options_of({path, "--fsdp", "false"}).text("sharding_strategy"), "zero3");
  std::filesystem::remove(path);
}

TEST(Fsdp, FalseAsksForNothing) {
  EXPECT_EQ(strategy_of_yaml("fsdp: false\n"), "zero3");
  EXPECT_EQ(strategy_of_yaml("fsdp: false\nzero_stage: 1\n"), "zero1");
  EXPECT_EQ(strategy_of_yaml("fsdp: []\nzero_stage: 2\n"), "zero2");
  const Options off = options_of_yaml("fsdp: false\nfsdp_config: {reshard_after_forward: false, cpu_offload: true}\n");
  EXPECT_EQ(off.text("sharding_strategy"), "zero3");
  EXPECT_EQ(off.text("offload_params"), "none");
  EXPECT_EQ(strategy_of_yaml("fsdp: []\nfsdp_config: {reshard_after_forward: false}\n"), "zero3");
  EXPECT_EQ(strategy_of_yaml("fsdp:\nfsdp_config: {reshard_after_forward: false}\n"), "zero2");  // nothing is said
}

TEST(Fsdp, Contradictions) {
  EXPECT_THAT(error_line_of_yaml("fsdp: full_shard\nfsdp_config: {reshard_after_forward: false}\n"),
              HasSubstr("asks for zero3, but"));
  EXPECT_THAT(error_line({"train", "--fsdp", "full_shard", "--fsdp_config", R"({"reshard_after_forward": false})"}),
              HasSubstr("--fsdp asks for zero3, but"));
  EXPECT_THAT(error_line_of_yaml("fsdp: true\nzero_stage: 1\n"), HasSubstr("FSDP, which has no such stage"));
  EXPECT_THAT(error_line({"train", "--fsdp", "wrap"}), HasSubstr("--fsdp wrap: expected"));
}

TEST(Unread, OptionsOfAnotherOptimizerOrScheduleAreNotes) {
  EXPECT_THAT(
      options_of({"--optim", "sgd", "--adam_beta1", "0.8", "--adam_epsilon", "1e-6"}).without_effect,
      ElementsAre("--adam_beta1 0.8 has no effect: it is for --optim adamw, and that is sgd [command line]",
                  "--adam_epsilon 1e-6 has no effect: it is for --optim adamw, and that is sgd [command line]"));
  EXPECT_THAT(options_of({"--momentum", "0.9"}).without_effect,
              ElementsAre("--momentum 0.9 has no effect: it is for --optim sgd, and that is adamw [command line]"));
  EXPECT_THAT(options_of({"--min_lr", "1e-5"}).without_effect,
              ElementsAre(HasSubstr("--min_lr 1e-5 has no effect: it is for --lr_scheduler_type cosine_with_min_lr")));
  EXPECT_THAT(options_of({"--lr_decay_steps", "3", "--lr_scheduler_type", "linear"}).without_effect.size(), 1u);
  for (const std::vector<std::string>& fits : std::vector<std::vector<std::string>>{
           {"--adam_beta2", "0.9", "--optim", "adamw_8bit"},
           {"--momentum", "0.9", "--nesterov", "--optim", "sgd"},
           {"--min_lr_rate", "0.1", "--lr_scheduler_type", "wsd", "--lr_decay_steps", "3"}})
    EXPECT_THAT(options_of(fits).without_effect, IsEmpty());
  EXPECT_THAT(options_of({}, "sft").without_effect, IsEmpty());  // the stage's defaults are no one's wish
}

TEST(Unread, EvaluationWithoutDataIsANote) {
  const Options options = options_of({"--eval_steps", "50"}, "sft");
  EXPECT_THAT(options.without_effect, ElementsAre(HasSubstr("--eval_steps 50 has no effect: there is no validation")));
  EXPECT_NO_THROW(check_options(options));
  EXPECT_THAT(options_of({"--eval_steps", "0"}).without_effect, IsEmpty());
  EXPECT_THAT(options_of({"--eval_strategy", "steps"}).without_effect, ElementsAre(HasSubstr("--eval_strategy steps")));
  EXPECT_THAT(options_of({"--eval_strategy", "no"}).without_effect, IsEmpty());
}

TEST(Unread, OptionsAreNamedWhereWhatTheyAreForIsNotAskedFor) {
  const struct {
    std::vector<std::string> alone, beside;
  } cases[] = {{{"--eval_max_batches", "3"}, {"--split_dataset_ratio", "0.1"}},
               {{"--warmup_type", "log"}, {"--warmup_steps", "3"}},
               {{"--sample_tokens", "5"}, {"--sample_prompt", "a"}},
               {{"--sample_temperature", "1"}, {"--prompt_file", "a"}},
               {{"--trace_dir", "x"}, {"--profile_steps", "1:2"}},
               {{"--profile_ranks", "0"}, {"--profile_steps", "1:2"}},
               {{"--max_shard_size", "1GB", "--save_model", "false"}, {"--save_model", "true"}},
               {{"--save_dtype", "bf16", "--save_model", "false"}, {"--save_model", "true"}},
               {{"--ignore_data_skip", "true"}, {"--resume_from_checkpoint", "auto"}},
               {{"--resume_only_model", "true"}, {"--resume_from_checkpoint", "auto"}},
               {{"--num_train_epochs", "3", "--max_steps", "3"}, {"--max_steps", "-1"}},
               {{"--per_device_eval_batch_size", "2"}, {"--split_dataset_ratio", "0.1"}},
               {{"--save_steps", "5", "--save_strategy", "no"}, {"--save_strategy", "steps"}},
               {{"--save_every", "5m", "--save_steps", "5"}, {"--save_steps", "5", "--save_every", "0"}},
               {{"--save_total_limit", "2", "--save_steps", "0"}, {"--save_steps", "5"}},
               {{"--async_save", "true", "--save_strategy", "no"}, {"--save_strategy", "epoch"}},
               {{"--warmup_ratio", "0.1", "--warmup_steps", "3"}, {"--warmup_steps", "0"}}};
  for (const auto& [alone, beside] : cases) {
    EXPECT_THAT(options_of(alone).without_effect, ElementsAre(HasSubstr(alone[0] + " " + alone[1] + " has no effect")));
    std::vector<std::string> both = alone;
    both.insert(both.end(), beside.begin(), beside.end());
    EXPECT_THAT(options_of(both).without_effect, IsEmpty()) << alone[0];
  }
  EXPECT_THAT(options_of({"--warmup_type", "linear", "--ignore_data_skip", "false"}).without_effect, IsEmpty());
  EXPECT_THAT(options_of({"--logging_dir", "x", "--report_to", "none"}).without_effect,
              ElementsAre("--logging_dir x has no effect: --report_to is none [command line]"));
  EXPECT_THAT(options_of({"--logging_dir", "x"}).without_effect, IsEmpty());
  EXPECT_THAT(options_of({"--eval_steps", "0.5", "--split_dataset_ratio", "0.1"}).without_effect, IsEmpty());
  EXPECT_THAT(refused([] { check_options(options_of({"--eval_strategy", "epoch"})); }), HasSubstr("validation data"));
}

TEST(Unread, OptionsOfOtherCommandsInFilesAndTheEnvironmentAreNamed) {
  const auto notes = [](const std::string& command, std::vector<std::string> environment) {
    return parsed({command}, std::move(environment)).options.without_effect;
  };
  EXPECT_THAT(notes("train", {"TESSERA_DTYPE=bf16"}),
              ElementsAre(AllOf(HasSubstr("--dtype bf16 has no effect: it is for convert. Use --mixed_precision ["),
                                HasSubstr("TESSERA_DTYPE"))));
  EXPECT_THAT(notes("sft", {"TESSERA_OUT=x", "TESSERA_TEMPERATURE=3", "TESSERA_WORLD_SIZE=8"}).size(), 3u);
  EXPECT_THAT(notes("plan", {"TESSERA_WORLD_SIZE=8", "TESSERA_SAVE_STEPS=3"}), IsEmpty());
  // generate reads a training run's file, of which it takes what it has.
  const Options options = parsed({"generate"}, {"TESSERA_LORA_ALPHA=3", "TESSERA_TOP_K=5"}).options;
  EXPECT_THAT(options.without_effect, IsEmpty());
  EXPECT_FALSE(options.given("lora_alpha"));
  EXPECT_EQ(options.integer("top_k"), 5);
}

TEST(Unread, DeepSpeedsKeysSayWhatOverridesThem) {
  const Options options = options_of_yaml(
      "deepspeed:\n  optimizer: {type: AdamW, params: {lr: 5.0e-4}}\n  scheduler: {type: WarmupDecayLR, "
      "params: {total_num_steps: 700, warmup_num_steps: 2, warmup_type: linear}}\n");
  EXPECT_EQ(options.real("learning_rate"), 5e-4);
  std::string all;
  for (const ExternalKey& key : options.external_keys) all += key.key + ": " + key.str() + "\n";
  EXPECT_THAT(all, HasSubstr("DeepSpeed's default, mapped to learning_rate 0.001; overridden: 5.0e-4 [conf.yaml"));
  EXPECT_EQ(options_of_yaml("deepspeed:\n  scheduler: {type: WarmupLR}\n").real("learning_rate"), 0.001);
}

TEST(Stream, IsAccepted) {
  for (const char* value : {"true", "false"})
    EXPECT_EQ(options_of({"--stream", value, "--temperature", "0"}, "infer").external_keys.size(), 1u);
}

class Hub : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / ("tessera-hub-" + std::to_string(::getpid()));
    std::filesystem::create_directories(root_);
    ::setenv("HF_HUB_CACHE", root_.c_str(), 1);
  }
  void TearDown() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(root_);
    ::unsetenv("HF_HUB_CACHE");
  }
  std::filesystem::path root_, before_ = std::filesystem::current_path();
};

TEST_F(Hub, ADataSetsNameIsLookedUpOrGetsTheCommand) {
  const Options missing = options_of({"--dataset", "tatsu-lab/alpaca#500"});
  EXPECT_EQ(
      refused([&] { refuse_hub_names(missing); }),
      "--dataset tatsu-lab/alpaca#500: no such file or directory, and it is in no local cache [command line]. "
      "Tessera downloads nothing. To download it from the Hugging Face Hub, where there is a network: hf download "
      "--repo-type dataset tatsu-lab/alpaca --local-dir alpaca");
  EXPECT_THAT(refused([&] { refuse_hub_names(options_of({"--val_dataset", "allenai/c4"})); }), HasSubstr("allenai/c4"));
  const std::filesystem::path set = root_ / "datasets--tatsu-lab--alpaca";
  std::filesystem::create_directories(set / "refs");
  std::filesystem::create_directories(set / "snapshots" / "abc");
  std::ofstream(set / "refs" / "main") << "abc\n";
  const Options found = options_of({"--dataset", "own.jsonl", "tatsu-lab/alpaca#500"});
  EXPECT_THAT(found.list("dataset"), ElementsAre("own.jsonl", (set / "snapshots" / "abc").string() + "#500"));
  EXPECT_NO_THROW(refuse_hub_names(found));
}

TEST_F(Hub, PathsAreNoNames) {
  for (const char* path : {"data.jsonl", "./a/b", "a/b.jsonl", "a/b.csv", "a/b/c", "a*/b", "/tmp/x", "v1.2"})
    EXPECT_FALSE(is_hub_dataset(path)) << path;
  std::filesystem::current_path(root_);
  std::filesystem::create_directories("org");
  EXPECT_FALSE(is_hub_dataset("org/name"));  // a file that is not in that directory
  EXPECT_TRUE(is_hub_dataset("other/name"));
  EXPECT_TRUE(is_hub_dataset("squad"));
  for (const char* file : {"corpus.bin", "corpus.idx", "plain"}) std::ofstream(file) << "x";
  EXPECT_FALSE(is_hub_dataset("corpus"));
  EXPECT_FALSE(is_hub_dataset("plain"));
  std::filesystem::create_symlink("itself", "itself");
  EXPECT_FALSE(is_hub_dataset("itself"));
}

TEST_F(Hub, AnAdapterNamesItsBase) {
  const auto base = [](const std::string& text) { return base_of_adapter({text, "adapter"}); };
  EXPECT_EQ(base(R"({"base_model_name_or_path": ")" + root_.string() + R"("})"), root_.string());
  EXPECT_THAT(refused([&] { (void)base(R"({"base_model_name_or_path": null})"); }), HasSubstr("names no base model"));
  EXPECT_THAT(refused([&] { (void)base(R"({"base_model_name_or_path": "some-org/some-model"})"); }),
              HasSubstr("hf download some-org/some-model"));
  EXPECT_THAT(refused([&] { (void)base(R"({"base_model_name_or_path": "/nowhere/at/all"})"); }),
              HasSubstr("the base model of adapter/adapter_config.json is /nowhere/at/all: no such directory"));
  const std::filesystem::path model = root_ / "models--some-org--some-model";
  std::filesystem::create_directories(model / "refs");
  std::filesystem::create_directories(model / "snapshots" / "fe");
  std::ofstream(model / "refs" / "v2") << "fe\n";
  std::ofstream(model / "snapshots" / "fe" / "config.json") << "{}";
  EXPECT_EQ(base(R"({"base_model_name_or_path": "some-org/some-model", "revision": "v2"})"),
            (model / "snapshots" / "fe").string());
}

TEST(Export, HasTheOptionsOfMsSwift) {
  const Invocation merged = parsed({"export", "--model", "m", "--adapters", "a", "--merge_lora", "true",
                                    "--output_dir=o", "--torch-dtype", "bfloat16"});
  EXPECT_EQ(merged.command, "convert");
  EXPECT_EQ(merged.options.text("in"), "m");
  EXPECT_EQ(merged.options.text("out"), "o");
  EXPECT_EQ(merged.options.text("dtype"), "bfloat16");
  EXPECT_EQ(parsed({"export", "--adapters", "a", "--merge_lora", "true"}).options.has("in"), false);
  EXPECT_THAT(error_line({"convert", "--output_dir", "o"}), HasSubstr("Use --out."));
}

TEST(HelpOfSft, HasItsDefaultsOnceItsExamplesAndLaunch) {
  const std::string text = help_text(find_command("sft"), false, "sft");
  const std::string all = help_text(find_command("sft"), true, "sft");
  EXPECT_THAT(text, HasSubstr("tessera launch -n 8 -- sft --model"));
  EXPECT_THAT(text, Not(HasSubstr("-- pt ")));
  EXPECT_THAT(text, Not(HasSubstr("mpirun")));
  EXPECT_THAT(help_text(find_command("pt"), false, "pt"), Not(HasSubstr("-- sft --model")));
  EXPECT_THAT(help_text(find_command("train"), false), HasSubstr("-- sft --model"));
  for (const OptionSpec& spec : option_table()) {
    if ((spec.commands & for_train) == 0 || stage_default(spec, "sft") == spec.default_value) continue;
    for (const std::string& page : {text, all}) {
      const std::size_t begin = page.find(std::string("\n  --") + spec.name + " ");
      ASSERT_NE(begin, std::string::npos) << spec.name;
      const std::string entry = page.substr(begin, page.find("\n  --", begin + 1) - begin);
      const auto brackets = std::ranges::count(entry, '[') + (entry.find("default ") != std::string::npos ? 1 : 0);
      EXPECT_EQ(brackets, 1) << entry;
    }
  }
}

}  // namespace
}  // namespace tessera::jobs::habits
