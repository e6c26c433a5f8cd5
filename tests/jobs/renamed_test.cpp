// SPDX-License-Identifier: Apache-2.0
// Names of LLaMA-Factory, axolotl, TRL and ms-swift that have another one here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/chat/chat_template.hpp"
#include "jobs/cli/options/other_tools.hpp"
#include "jobs/cli/options/renamed.hpp"
#include "jobs/cli/options/unsupported.hpp"
#include "jobs/cli/session/setup.hpp"
#include "tests/jobs/parse.hpp"

namespace tessera::jobs {
namespace {

using testing::HasSubstr;
using testing::Property;
using testing::Throws;

struct Renamed {
  std::string key, ours;
};

/// The keys of LLaMA-Factory's and axolotl's examples: ours by the same name, harmless, or refused with our name.
TEST(Renamed, KeysOfLlamaFactoryAndAxolotlNameOurs) {
  const std::vector<Renamed> refused_keys = {{"finetuning_type: lora", "--tuner_type"},
                                             {"lora_target: all", "--target_modules"},
                                             {"dataset_dir: data", "--dataset"},
                                             {"cutoff_len: 2048", "--max_length"},
                                             {"max_samples: 1000", "--dataset FILE#N"},
                                             {"val_size: 0.1", "--split_dataset_ratio"},
                                             {"quantization_bit: 4", "--quant_bits"},
                                             {"base_model: NousResearch/Llama-3.2-1B", "--model"},
                                             {"load_in_4bit: true", "--quant_method bnb --quant_bits 4"},
                                             {"load_in_8bit: true", "--quant_bits 8"},
                                             {"adapter: qlora", "--tuner_type lora"},
                                             {"lora_r: 16", "--lora_rank"},
                                             {"lora_target_linear: true", "--target_modules all-linear"},
                                             {"lora_target_modules: [q_proj, v_proj]", "--target_modules"},
                                             {"datasets: [{path: a/b, type: alpaca}]", "--dataset"},
                                             {"sequence_len: 512", "--max_length"},
                                             {"sample_packing: true", "--packing"},
                                             {"num_epochs: 4", "--num_train_epochs"},
                                             {"optimizer: adamw_torch", "--optim"},
                                             {"special_tokens: {pad_token: x}", "--eos_token"},
                                             {"val_set_size: 0.05", "--split_dataset_ratio"},
                                             {"chat_template: llama3", "--template"},
                                             {"train_on_inputs: true", "--loss_scale all"},
                                             {"evals_per_epoch: 4", "--eval_steps"},
                                             {"adapter_name_or_path: saves/a", "--adapters"}};
  for (const auto& [key, ours] : refused_keys) {
    const std::string line = error_line_of_yaml(key + "\n");
    EXPECT_THAT(line, HasSubstr("--" + key.substr(0, key.find(':')))) << line;
    EXPECT_THAT(line, HasSubstr("a name of ")) << line;
    EXPECT_THAT(line, HasSubstr("[conf.yaml:1]")) << line;
    EXPECT_THAT(line, HasSubstr(ours)) << line;
  }
  const Options same = options_of_yaml(
      "model_name_or_path: m\nstage: sft\ndo_train: true\nlora_rank: 4\ntuner_type: lora\noutput_dir: o\n"
      "per_device_train_batch_size: 3\nlearning_rate: 1.0e-4\nbf16: true\nflash_attn: fa2\npacking: true\n"
      "lr_scheduler: cosine\nwarmup_ratio: 0.1\nflash_attention: true\ngradient_checkpointing: true\n"
      "fsdp: [full_shard, auto_wrap]\nplot_loss: true\noverwrite_cache: true\npreprocessing_num_workers: 16\n");
  EXPECT_EQ(same.text("model"), "m");
  EXPECT_EQ(same.integer("per_device_train_batch_size"), 3);
  EXPECT_EQ(same.text("sharding_strategy"), "zero3");
  EXPECT_EQ(options_of_yaml("micro_batch_size: 5\n").integer("per_device_train_batch_size"), 5);
}

TEST(Renamed, ValuesThatAskForNothingAreAccepted) {
  EXPECT_NO_THROW(
      (void)options_of_yaml("load_in_4bit: false\nload_in_8bit: false\nadapter:\nlora_model_dir:\n"
                            "special_tokens:\nval_set_size: 0.0\ntrain_on_inputs: false\noptimizer:\n"));
  EXPECT_NO_THROW((void)parsed({"train", "--use_peft", "false", "--load-in-4bit=false"}));
}

TEST(Renamed, OptionsOfTheCommandLinePointToOurs) {
  const auto line = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "sft");
    return error_line(arguments);
  };
  EXPECT_EQ(line({"--load_in_4bit"}),
            "--load_in_4bit true: a name of LLaMA-Factory, axolotl and TRL [command line]. Use --quant_method bnb "
            "--quant_bits 4, with --tuner_type lora");
  EXPECT_THAT(line({"--use-peft"}), HasSubstr("Use --tuner_type lora"));
  EXPECT_THAT(line({"--use_peft", "true", "--lora_r", "16"}),
              HasSubstr("2 options are refused; another name here: --use_peft true"));
  EXPECT_EQ(line({"--tuner_type", "qlora"}),
            "--tuner_type qlora: expected full or lora [command line]. Use --tuner_type lora --quant_method bnb "
            "--quant_bits 4");
  EXPECT_THAT(error_line_of_yaml("tuner_type: qlora\n"), HasSubstr("--quant_bits 4"));
  EXPECT_THAT(line({"--optim", "paged_adamw_8bit"}), HasSubstr("Use --optim adamw_8bit"));
  EXPECT_THAT(error_line({"infer", "--merge_lora", "true"}), HasSubstr("--adapters is applied as it is"));
  EXPECT_THAT(error_line({"sft"}, ExitCode::usage, {"TESSERA_SEQUENCE_LEN=7"}), HasSubstr("--max_length"));
  const auto check_template = [](const std::string& name) {
    check_options(parsed({"train", "--template", name}).options);
  };
  EXPECT_THAT(
      [&] { check_template("qwen2_5"); },
      Throws<Error>(Property(&Error::line, HasSubstr("Leave --template out for the model's own chat template"))));
  for (const std::string& known : io::ChatTemplate::names()) EXPECT_NO_THROW(check_template(known)) << known;
}

TEST(Renamed, TableIsConsistent) {
  for (const RenamedOption& option : renamed_options()) {
    EXPECT_STRNE(option.instead, "") << option.names;
    for (const std::string& name : split_words(option.names, ' ')) {
      EXPECT_EQ(find_option(name), nullptr) << name;
      EXPECT_EQ(find_unsupported(name), nullptr) << name;
      EXPECT_EQ(find_other_tools(name), nullptr) << name;
      EXPECT_EQ(find_renamed(name), &option) << name;
    }
    // Every option that an error names is one.
    const std::string text = option.instead;
    for (std::size_t at = text.find("--"); at != std::string::npos; at = text.find("--", at + 2)) {
      const std::string name = text.substr(at + 2, text.find_first_of(" ,;:", at) - at - 2);
      EXPECT_NE(find_option(name), nullptr) << option.names << ": " << name;
    }
  }
}

TEST(Renamed, CommandsOfOtherTools) {
  EXPECT_THAT(error_line({"chat"}), HasSubstr("tessera generate --chat"));
  EXPECT_THAT(error_line({"merge-lora"}), HasSubstr("tessera convert --merge_lora true"));
}

}  // namespace
}  // namespace tessera::jobs
