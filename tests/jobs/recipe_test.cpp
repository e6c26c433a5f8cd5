// SPDX-License-Identifier: Apache-2.0
// Recipes: stages and their defaults, options of other tools, and several refusals at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jobs/cli/options/other_tools.hpp"
#include "jobs/cli/options/unsupported.hpp"
#include "jobs/cli/session/setup.hpp"
#include "tests/jobs/parse.hpp"

namespace tessera::jobs {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> outcomes(const Options& options) {
  std::vector<std::string> lines;
  for (const ExternalKey& key : options.external_keys) lines.push_back(key.key + ": " + key.str());
  return lines;
}

TEST(Stage, SftHasTheDefaultsOfMsSwift) {
  const Options options = parsed({"sft", "--split_dataset_ratio", "0.1"}).options;
  EXPECT_EQ(options.text("stage"), "sft");
  EXPECT_EQ(options.real("learning_rate"), 1e-5);
  EXPECT_EQ(options.real("num_train_epochs"), 3);
  EXPECT_EQ(options.real("weight_decay"), 0.1);
  EXPECT_EQ(options.real("adam_beta2"), 0.95);
  EXPECT_EQ(options.integer("per_device_train_batch_size"), 1);
  EXPECT_EQ(options.text("gradient_checkpointing"), "auto");
  EXPECT_EQ(options.integer("save_steps"), 500);
  EXPECT_EQ(options.integer("eval_steps"), 500);
  EXPECT_EQ(options.value("learning_rate").source.text, "default of --stage sft");
  EXPECT_FALSE(options.given("learning_rate"));
  EXPECT_EQ(
      stage_line(options),
      "sft, with its defaults learning_rate 1e-5, num_train_epochs 3, weight_decay 0.1, adam_beta2 0.95, "
      "per_device_train_batch_size 1, save_steps 500, gradient_accumulation_steps for at least 16 samples a step, "
      "eval_steps 500");
  EXPECT_EQ(parsed({"sft"}).options.integer("eval_steps"), 0);  // nothing to evaluate
}

TEST(Stage, PtAndTrainKeepTheDefaultsOfPreTraining) {
  const Options plain = parsed({"train"}).options, pt = parsed({"pt"}).options;
  EXPECT_EQ(parsed({"pt"}).command, "train");
  for (const OptionSpec& spec : option_table()) {
    if (std::string(spec.name) == "stage") continue;
    EXPECT_EQ(plain.value(spec.name).items, pt.value(spec.name).items) << spec.name;
    const std::vector<std::string> by_table =
        spec.default_value[0] == '\0' ? std::vector<std::string>{} : std::vector<std::string>{spec.default_value};
    EXPECT_EQ(plain.value(spec.name).items, by_table) << spec.name;
  }
  EXPECT_EQ(stage_line(pt), "");
}

TEST(Stage, ItsDefaultsYieldToEverySource) {
  const Options options =
      parsed({"train", "--stage", "sft", "--lr", "2e-4", "--global_batch_size", "8"}, {"TESSERA_SAVE_STEPS=7"}).options;
  EXPECT_EQ(options.real("learning_rate"), 2e-4);
  EXPECT_EQ(options.integer("save_steps"), 7);
  EXPECT_EQ(stage_line(options).find("learning_rate"), std::string::npos);
  EXPECT_EQ(stage_line(options).find("gradient_accumulation"), std::string::npos);
  const Options yaml = options_of_yaml("stage: sft\nlearning_rate: 3e-3\n");
  EXPECT_EQ(yaml.real("learning_rate"), 3e-3);
  EXPECT_EQ(yaml.real("num_train_epochs"), 3);
}

TEST(Stage, AStepOfSftHasAtLeast16Samples) {
  const auto batch = [](std::vector<std::string> arguments, int world) {
    arguments.insert(arguments.begin(), "sft");
    return batch_of(parsed(arguments).options, world);
  };
  EXPECT_EQ(batch({}, 1).accumulation, 16);
  EXPECT_EQ(batch({}, 3).accumulation, 6);
  EXPECT_EQ(batch({}, 3).global_batch, 18);
  EXPECT_EQ(batch({"--per_device_train_batch_size", "4"}, 8).accumulation, 1);
  EXPECT_EQ(batch({"--per_device_train_batch_size", "4"}, 8).global_batch, 32);
  EXPECT_EQ(batch({"--gradient_accumulation_steps", "2"}, 2).global_batch, 4);
}

TEST(Stage, TheCommandAndTheOptionAgree) {
  EXPECT_EQ(parsed({"sft", "--stage", "sft"}).options.text("stage"), "sft");
  EXPECT_EQ(error_line({"sft", "--stage", "pt"}),
            "tessera sft is --stage sft, but --stage is pt [command line]. Drop one of the two, or use tessera train");
  EXPECT_THAT(error_line({"train", "--stage", "dpo"}), HasSubstr("Use --stage rlhf --rlhf_type"));
}

TEST(Stage, TypesOfPreferencesAreCommands) {
  const auto chosen = [](const std::vector<std::string>& line) {
    const Options options = parsed(line).options;
    return options.text("stage") + " " + options.text("rlhf_type");
  };
  EXPECT_EQ(chosen({"rlhf"}), "rlhf dpo");
  EXPECT_EQ(chosen({"kto"}), "rlhf kto");
  EXPECT_EQ(chosen({"simpo"}), "rlhf simpo");
  EXPECT_EQ(chosen({"plan", "cpo"}), "rlhf cpo");
  EXPECT_EQ(chosen({"plan", "rlhf", "--rlhf_type", "orpo"}), "rlhf orpo");
  EXPECT_EQ(error_line({"dpo", "--rlhf_type", "cpo"}),
            "tessera dpo is --rlhf_type dpo, but --rlhf_type is cpo [command line]. Drop one of the two, or use "
            "tessera rlhf");
  EXPECT_THAT(error_line({"rlhf", "--rlhf_type", "ppo"}), HasSubstr("Not built yet"));
  EXPECT_THAT(error_line({"dpo", "--loss_type", "aot_pair"}), HasSubstr("use --loss_type aot_unpaired"));
  EXPECT_EQ(parsed({"dpo", "--loss_type", "sigmoid", "bco_pair", "sft"}).options.list("loss_type").size(), 3U);
  EXPECT_THAT(error_line({"dpo", "--loss_type", "sigmoid", "unknown"}), HasSubstr("expected sigmoid, hinge"));
  EXPECT_EQ(parsed({"dpo", "--ld_alpha", "0.5", "--use_weighting", "true"}).options.real("ld_alpha"), 0.5);
  EXPECT_THAT(error_line({"dpo", "--ld_alpha", "1.5"}), HasSubstr("--ld_alpha 1.5"));
  EXPECT_EQ(chosen({"rm"}), "rlhf rm");
  EXPECT_EQ(parsed({"rm"}).options.real("learning_rate"), 1e-5);
  EXPECT_EQ(parsed({"dpo"}).options.real("learning_rate"), 1e-6);
  EXPECT_EQ(parsed({"eval", "--rlhf_type", "cpo"}).options.text("stage"), "rlhf");
  EXPECT_EQ(parsed({"kto"}).options.integer("per_device_train_batch_size"), 2);  // the KL of one answer is none
  const Options options = parsed({"dpo", "--tuner_type", "lora"}).options;
  EXPECT_EQ(options.real("learning_rate"), 1e-4);
  EXPECT_EQ(options.real("lora_dropout"), 0);
  EXPECT_EQ(options.text("loss_scale"), "last_round");
  EXPECT_EQ(parsed({"dpo", "--loss_scale", "all"}).options.text("loss_scale"), "all");
}

TEST(OtherTools, OptionsAreMappedOrHarmless) {
  const Options options =
      parsed({"sft", "--torch_dtype", "bfloat16", "--attn-impl", "flash_attn", "--dataloader_num_workers", "4",
              "--deepspeed", "zero3", "--gradient_checkpointing", "true", "--model_name", "swift", "robot"})
          .options;
  EXPECT_EQ(options.text("mixed_precision"), "bf16");
  EXPECT_EQ(options.text("sharding_strategy"), "zero3");
  EXPECT_EQ(options.text("gradient_checkpointing"), "full");
  EXPECT_THAT(
      outcomes(options),
      ElementsAre("--torch_dtype bfloat16: mapped to mixed_precision bf16",
                  "--attn-impl flash_attn: harmless: attention is always tiled (flash attention)",
                  "--dataloader_num_workers 4: harmless: samples are copied from mapped files; there are no worker "
                  "processes",
                  "--model_name swift robot: harmless: it is for ms-swift's data set swift/self-cognition only"));
  const Options yaml = options_of_yaml("torch_dtype: float16\ndataloader_num_workers: 2\n");
  EXPECT_EQ(yaml.text("mixed_precision"), "fp16");
  EXPECT_EQ(yaml.value("mixed_precision").source.text, "conf.yaml:1");
  EXPECT_EQ(parsed({"train"}, {"TESSERA_FULL_DETERMINISM=true"}).options.flag("reproducible"), true);
}

TEST(OtherTools, ValuesThatAreMissingAreRefused) {
  EXPECT_EQ(error_line({"train", "--torch_dtype", "float8"}),
            "--torch_dtype float8: not supported [command line]. Use --mixed_precision no, bf16 or fp16");
  EXPECT_THAT(error_line({"train", "--push_to_hub"}), HasSubstr("Nothing is uploaded"));
  EXPECT_THAT(error_line({"train", "--torch_dtype", "bfloat16", "--mixed_precision", "fp16"}),
              HasSubstr("asks for --mixed_precision bf16, but it is fp16"));
  EXPECT_EQ(parsed({"train", "--torch_dtype", "bfloat16", "--mixed_precision", "bf16"}).options.text("mixed_precision"),
            "bf16");
  EXPECT_EQ(parsed({"generate", "--torch_dtype", "bfloat16"}).options.text("mixed_precision"), "bf16");
  EXPECT_THAT(error_line({"tokenize", "--torch_dtype", "bfloat16"}), HasSubstr("unknown option --torch_dtype"));
}

TEST(OtherTools, TableIsConsistent) {
  for (const OtherToolsOption& option : other_tools_options()) {
    EXPECT_STRNE(option.note, "") << option.names;
    if (option.target[0] != '\0') { EXPECT_NE(find_option(option.target), nullptr) << option.names; }
    for (const std::string& name : split_words(option.names, ' ')) {
      EXPECT_EQ(find_option(name), nullptr) << name;
      EXPECT_EQ(find_unsupported(name), nullptr) << name;
    }
    for (const std::string& entry : split_words(option.values, '|')) {
      const OtherToolsRequest request = request_of(option, entry.substr(0, entry.find('=')));
      EXPECT_TRUE(request.accepted) << entry;
      if (!request.value.empty()) { EXPECT_EQ(expected_value(*find_option(option.target), request.value), ""); }
    }
  }
}

TEST(Refusals, AllAreNamedAtOnceAsTheyWereTyped) {
  try {
    (void)parsed({"sft", "--deepspeed-autotp-size", "2", "--lr", "fast", "--use_galore", "--lora_rnk", "8", "run.yml",
                  "--torch_dtype", "int8", "--seed", "3", "--max_length"},
                 {"TESSERA_USE_DORA=true"});
    FAIL() << "no error";
  } catch (const RefusedOptions& refused) {
    EXPECT_EQ(refused.code(), ExitCode::usage);
    EXPECT_EQ(refused.lines.at(0), "7 options are refused");
    EXPECT_EQ(refused.lines.at(1),
              "not supported: --deepspeed-autotp-size 2 [command line]. Use --tensor_parallel_size. Accepted: 1");
    EXPECT_THAT(refused.lines.at(2), HasSubstr("not supported: --use_galore true"));
    EXPECT_THAT(refused.lines.at(3), HasSubstr("[environment TESSERA_USE_DORA]"));
    EXPECT_THAT(refused.lines.at(4), HasSubstr("not supported: --torch_dtype int8"));
    EXPECT_THAT(refused.lines.at(5), HasSubstr("unknown: unknown option --lora_rnk [command line]"));
    EXPECT_THAT(refused.lines.at(6), HasSubstr("wrong value: --lr fast: expected a number"));
    EXPECT_THAT(refused.lines.at(7), HasSubstr("wrong value: --max_length: expected"));
    EXPECT_THAT(refused.line(), HasSubstr("--lora_rnk"));
    EXPECT_THAT(refused.line(), Not(HasSubstr("not built yet")));
    EXPECT_THAT(refused.line(), Not(HasSubstr(": not supported [")));
  }
}

TEST(Refusals, AcceptedOptionsThatContradictAreNamedBesideThem) {
  const OptionCheck further = [](const Options& options) {
    throw SeveralErrors(ExitCode::usage, {"seed " + options.text("seed"), "second"});
  };
  char* none = nullptr;
  const auto line_of = [&](const char* command) {
    try {
      (void)parse_command_line({command, "--lr", "fast", "--seed", "3"}, &none, further);
    } catch (const RefusedOption& refused) { return refused.line(); } catch (const RefusedOptions& refused) {
      return refused.line();
    }
    return std::string("no error");
  };
  EXPECT_THAT(line_of("train"), AllOf(HasSubstr("3 options are refused; wrong value: --lr fast"),
                                      HasSubstr("among the other options: seed 3; among the other options: second")));
  EXPECT_THAT(line_of("plan"), HasSubstr("3 options are refused"));
  EXPECT_THAT(line_of("generate"), Not(HasSubstr("among")));
  EXPECT_EQ(parse_command_line({"train", "--seed", "3"}, &none, further).options.text("seed"), "3");
}

TEST(Refusals, OfAFileToo) {
  const std::string line = error_line_of_yaml(
      "use_dora: true\nlearning_rat: 1\nseed: x\nfsdp_config: {fsdp_x: 1}\nzero_optimization: "
      "{offload_optimizer: {ratio: 0.5}}\n");
  for (const char* part : {"5 options are refused", "conf.yaml:1", "unknown key learning_rat [conf.yaml:2]",
                           "--seed x: expected", "offload", "unknown key fsdp_config.fsdp_x"})
    EXPECT_THAT(line, HasSubstr(part));
}

TEST(Refusals, ConfigIsAnOperand) {
  EXPECT_THAT(error_line({"train", "--config", "nowhere.yaml"}, ExitCode::data),
              HasSubstr("no configuration file nowhere.yaml"));
  EXPECT_THAT(canonical_arguments({"--config=run.yaml", "--seed", "1"}, for_train).arguments,
              ElementsAre("run.yaml", "--seed=1"));
}

}  // namespace
}  // namespace tessera::jobs
