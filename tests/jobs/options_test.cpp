// SPDX-License-Identifier: Apache-2.0
// Command lines: spelling, types of values, unknown and unsupported options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jobs/cli/options/unsupported.hpp"
#include "tests/io/files.hpp"
#include "tests/jobs/parse.hpp"

namespace tessera::jobs {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string error_line(const std::vector<std::string>& arguments, ExitCode code,
                       const std::vector<std::string>& environment) {
  try {
    (void)parsed(arguments, environment);
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.line();
    return error.line();
  }
  ADD_FAILURE() << "no error";
  return "";
}

Options options_of_yaml(const std::string& text) {
  Options options;
  options.read_tree(io::parse_yaml(text, "conf.yaml"), "conf.yaml");
  options.resolve();
  options.throw_refused();
  return options;
}

std::string error_line_of_yaml(const std::string& text) {
  try {
    (void)options_of_yaml(text);
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(ExitCode::usage)) << error.line();
    return error.line();
  }
  ADD_FAILURE() << "no error: " << text;
  return "";
}

namespace {

TEST(CanonicalArguments, DashesAliasesAndEquals) {
  EXPECT_THAT(canonical_arguments({"--micro-batch-size", "4", "--lr=1e-4", "--seq_len=128"}, for_train).arguments,
              ElementsAre("--per_device_train_batch_size=4", "--learning_rate=1e-4", "--max_length=128"));
}

TEST(CanonicalArguments, FlagsTakeOnlyABoolean) {
  EXPECT_THAT(canonical_arguments({"--from_scratch", "conf.yaml"}, for_train).arguments,
              ElementsAre("--from_scratch=true", "conf.yaml"));
  EXPECT_THAT(canonical_arguments({"--from-scratch", "True", "--dataset_shuffle", "no"}, for_train).arguments,
              ElementsAre("--from_scratch=True", "--dataset_shuffle=no"));
  EXPECT_THAT(canonical_arguments({"--no-from_scratch", "--no_add_version", "--packing=1"}, for_train).arguments,
              ElementsAre("--from_scratch=false", "--add_version=false", "--packing=1"));
}

TEST(CanonicalArguments, ListsAtSpacesAndCommas) {
  EXPECT_THAT(canonical_arguments({"--dataset", "a.txt", "b.txt,c.txt", "--max_steps", "-1"}, for_train).arguments,
              ElementsAre("--dataset=a.txt", "--dataset=b.txt", "--dataset=c.txt", "--max_steps=-1"));
}

TEST(Parse, PrefixesOfNamesAreUnknown) {
  EXPECT_THAT(error_line({"train", "--learning", "1e-4"}), HasSubstr("unknown option --learning"));
  EXPECT_EQ(parsed({"train", "--lr", "1e-4"}).options.real("learning_rate"), 1e-4);
}

TEST(Parse, NamesOfFilesBetweenQuotesAreSplitAtCommas) {
  const auto datasets = [](const std::string& yaml) { return options_of_yaml("dataset: " + yaml).list("dataset"); };
  const auto both = ElementsAre("a.jsonl", "cmd:cat b.jsonl, c.jsonl");
  for (const char* yaml : {"a.jsonl,cmd:cat b.jsonl, c.jsonl", "\"a.jsonl,cmd:cat b.jsonl, c.jsonl\"",
                           "'a.jsonl, cmd:cat b.jsonl, c.jsonl'", "[\"a.jsonl,cmd:cat b.jsonl, c.jsonl\"]",
                           "[a.jsonl, \"cmd:cat b.jsonl, c.jsonl\"]", "\n- a.jsonl,cmd:cat b.jsonl, c.jsonl"})
    EXPECT_THAT(datasets(yaml), both) << yaml;
  EXPECT_THAT(datasets("\"a b.jsonl,c\""), ElementsAre("a b.jsonl", "c"));
  const test::TempDir folder;
  (void)folder.file("a,b.jsonl", "");
  EXPECT_THAT(datasets("['" + (folder / "a,b.jsonl") + "']"), ElementsAre(folder / "a,b.jsonl"));
  for (const char* none : {"\"\"", "[t.txt, \"\"]"})
    EXPECT_THAT(error_line_of_yaml(std::string("dataset: ") + none),
                HasSubstr("--dataset: expected the name of a file, got none [conf.yaml:1]"));
  EXPECT_THAT(options_of_yaml("freeze_parameters: [\"a,b\"]").list("freeze_parameters"), ElementsAre("a,b"));
}

TEST(Parse, ValuesThatAreNotUtf8AreRefused) {
  EXPECT_THAT(error_line({"train", "--dataset", "t\xff.txt"}),
              HasSubstr("--dataset t\uFFFD.txt: not UTF-8 [command line]. Write it in UTF-8"));
  EXPECT_THAT(error_line({"train", "--dataset", "a.txt,cmd:cat t\xff.txt"}),
              HasSubstr("cmd:cat t\uFFFD.txt: not UTF-8"));
  EXPECT_THAT(error_line({"generate", "--prompt", "\xe9t\xe9"}), HasSubstr("--prompt \uFFFDt\uFFFD: not UTF-8"));
  EXPECT_THAT(error_line({"train"}, ExitCode::usage, {"TESSERA_OUTPUT_DIR=o\xff"}),
              HasSubstr("--output_dir o\uFFFD: not UTF-8 [environment TESSERA_OUTPUT_DIR]"));
  const test::TempDir folder;
  EXPECT_THAT(error_line({"train", folder.file("c\xff.yaml", "seed: 3")}),
              HasSubstr("the name of a configuration file is not UTF-8"));
}

TEST(Parse, UnknownNamesGetTheNearestThree) {
  const std::string line = error_line({"train", "--zero_stag", "3"});
  EXPECT_THAT(line, HasSubstr("unknown option --zero_stag"));
  EXPECT_THAT(line, HasSubstr("command line"));
  EXPECT_THAT(line, HasSubstr("zero_stage"));
  EXPECT_LE(nearest("rate", option_names()).size(), 3u);
  EXPECT_EQ(nearest("learningrate", option_names()).at(0), "learning_rate");
  EXPECT_TRUE(nearest("qqqqqqqqqqqqqqqq", option_names()).empty());
}

TEST(Parse, UnknownCommandsGetAHint) {
  EXPECT_THAT(error_line({"trian"}), HasSubstr("train"));
  EXPECT_THAT(error_line({"template"}), HasSubstr("not built yet"));
  EXPECT_THAT(error_line({"grpo"}), HasSubstr("not built yet"));
}

TEST(Parse, OptionsOfOtherCommandsAreNamed) {
  EXPECT_THAT(error_line({"train", "--world_size", "4"}), HasSubstr("plan"));
  EXPECT_EQ(error_line({"eval", "--val_dataset", "a.txt"}),
            "this command has no option --val_dataset [command line]. eval reads the files of --dataset. Commands that "
            "have it: train, plan, bench, config");
  EXPECT_THAT(error_line({"convert", "--output_dir", "a"}), HasSubstr("Use --out."));
  EXPECT_THAT(error_line({"convert", "--model", "a"}), HasSubstr("Use --in."));
}

TEST(Parse, OneDashIsNamed) {
  EXPECT_THAT(error_line({"train", "-lr", "3"}),
              HasSubstr("unknown option -lr [command line]. Options begin with two"));
}

TEST(Parse, ValuesAreChecked) {
  EXPECT_THAT(error_line({"train", "--max_length", "12x"}), HasSubstr("an integer of at least 1"));
  EXPECT_THAT(error_line({"train", "--max_length", "0"}), HasSubstr("at least 1"));
  EXPECT_THAT(error_line({"train", "--learning_rate", "fast"}), HasSubstr("a number"));
  EXPECT_THAT(error_line({"train", "--learning_rate", "nan"}), HasSubstr("a number"));
  EXPECT_THAT(error_line({"train", "--comm", "tcp"}),
              HasSubstr("--comm tcp: expected auto, mpi, node or nccl [command line]"));
  EXPECT_THAT(error_line({"train", "--from_scratch=maybe"}), HasSubstr("true or false"));
  EXPECT_THAT(error_line({"train", "--profile_steps", "9:3"}), HasSubstr("A:B"));
  EXPECT_THAT(error_line({"train", "--max_length"}), HasSubstr("expected an integer of at least 1"));
  for (const char* size : {"device_memory", "max_shard_size", "checkpoint_file_size"})
    EXPECT_THAT(error_line({"train", std::string("--") + size, "0"}), HasSubstr("expected a size above 0"));
  EXPECT_THAT(error_line({"train", "--shard_group_size", "0"}), HasSubstr("shard_group_size"));
  EXPECT_THAT(error_line({"train", "--forward_prefetch", "BACKWARD"}), HasSubstr("number of units"));
}

TEST(Parse, FsdpNamesOfPrefetch) {
  const Options options =
      parsed({"train", "--forward_prefetch", "true", "--backward_prefetch", "BACKWARD_POST"}).options;
  EXPECT_EQ(options.integer("forward_prefetch"), 1);
  EXPECT_EQ(options.integer("backward_prefetch"), 0);
  EXPECT_EQ(parsed({"train", "--gradient_checkpointing"}).options.text("gradient_checkpointing"), "full");
  EXPECT_EQ(parsed({"train", "--gradient_checkpointing", "false"}).options.text("gradient_checkpointing"), "none");
  for (const char* form : {"none", "selective", "full", "auto"})
    EXPECT_EQ(parsed({"train", "--gradient_checkpointing", form}).options.text("gradient_checkpointing"), form);
  EXPECT_EQ(parsed({"train", "--activation_checkpointing", "selective"}).options.text("gradient_checkpointing"),
            "selective");
  EXPECT_THAT(error_line({"train", "--gradient_checkpointing", "some"}), HasSubstr("selective"));
}

TEST(Parse, TheLastOfARepeatedOptionWins) {
  EXPECT_EQ(parsed({"train", "--seed", "1", "--seed", "2"}).options.integer("seed"), 2);
}

std::vector<std::string> in_order(const Options& options) {
  std::vector<std::string> texts;
  for (const Options::Item& item : options.in_order({"freeze_parameters", "trainable_parameters"}))
    texts.push_back(item.option.substr(0, 1) + " " + item.text);
  return texts;
}

TEST(InOrder, IsThatOfTheCommandLine) {
  const Options options = parsed({"train", "--freeze", "*", "--trainable_parameters", "h.1,h.2", "--seed", "1",
                                  "--freeze_parameters=*.bias", "--trainable", "h.1.ln_1.bias"})
                              .options;
  EXPECT_THAT(in_order(options), ElementsAre("f *", "t h.1", "t h.2", "f *.bias", "t h.1.ln_1.bias"));
  EXPECT_EQ(options.in_order({"trainable_parameters", "freeze_parameters"}).at(0).source, "command line");
  EXPECT_THAT(in_order(parsed({"train"}).options), ElementsAre());
}

TEST(InOrder, IsThatOfTheFile) {
  EXPECT_THAT(in_order(options_of_yaml("trainable_parameters: [h.1, h.2]\nfreeze: '*.bias'\n")),
              ElementsAre("t h.1", "t h.2", "f *.bias"));
  EXPECT_THAT(in_order(options_of_yaml("freeze_parameters: wte wpe\ntrainable_parameters:\n  - wte\n")),
              ElementsAre("f wte", "f wpe", "t wte"));
}

TEST(InOrder, SourcesOfLowerPrecedenceComeFirst) {
  EXPECT_THAT(in_order(parsed({"train", "--freeze", "h.1"}, {"TESSERA_TRAINABLE_PARAMETERS=h"}).options),
              ElementsAre("t h", "f h.1"));
  EXPECT_THAT(in_order(parsed({"train", "--trainable", "h.1"}, {"TESSERA_TRAINABLE_PARAMETERS=h"}).options),
              ElementsAre("t h.1"));
}

TEST(Values, Sizes) {
  EXPECT_EQ(parse_size("5GB"), 5000000000u);
  EXPECT_EQ(parse_size("512MiB"), 512u << 20);
  EXPECT_EQ(parse_size("2G"), 2ull << 30);
  EXPECT_EQ(parse_size("4096"), 4096u);
  EXPECT_EQ(parse_size("-1"), std::nullopt);
  EXPECT_EQ(parse_size("5 parsecs"), std::nullopt);
}

TEST(Values, Times) {
  EXPECT_EQ(parse_duration("1h30m"), 5400);
  EXPECT_EQ(parse_duration("90"), 90);
  EXPECT_EQ(parse_duration("2d"), 172800);
  EXPECT_EQ(parse_duration("1h30"), std::nullopt);
  EXPECT_EQ(parse_duration(""), std::nullopt);
}

TEST(Values, Integers) {
  EXPECT_EQ(parse_integer("1e3"), 1000);
  EXPECT_EQ(parse_integer("4k"), 4000);
  EXPECT_EQ(parse_integer("1.5"), std::nullopt);
  EXPECT_EQ(parse_integer(" 1"), std::nullopt);
  EXPECT_EQ(parse_integer("99999999999999999999"), std::nullopt);
}

// Naming an option that is not built is an error that says so and what to use instead, wherever it is named. A value
// that asks for nothing that is missing is accepted.
TEST(Unsupported, IsAnErrorWhereverItIsNamed) {
  for (const UnsupportedOption& option : unsupported_options()) {
    for (std::string name : split_words(option.names, ' ')) {
      std::replace(name.begin(), name.end(), '*', 'x');  // any end of a name
      std::string variable = "TESSERA_" + name + "=77";
      for (char& c : variable) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      for (const std::string& line :
           {error_line({"train", "--" + name + "=77"}), error_line({"train", "--" + name, "77", "--seed", "1"}),
            error_line({"train"}, ExitCode::usage, {variable}), error_line_of_yaml(name + ": 77\n")}) {
        EXPECT_THAT(line, HasSubstr(option.state)) << name;
        EXPECT_THAT(line, HasSubstr(option.message)) << name;
      }
      for (const std::string& value : split_words(option.accepted, '|')) {
        EXPECT_NO_THROW((void)parsed({"train", "--" + name + "=" + value})) << name << " " << value;
        EXPECT_NO_THROW((void)options_of_yaml(name + ": " + value + "\n")) << name << " " << value;
      }
    }
  }
  EXPECT_EQ(error_line({"train", "--task-type", "embedding"}),
            "--task-type embedding: not built yet [command line]. Classification, embedding and reranking are missing. "
            "Accepted: causal_lm");
  EXPECT_THAT(error_line({"train", "--sliding_window", "128"}), HasSubstr("config.json has it"));
  EXPECT_THAT(error_line({"train", "--use-dora"}), HasSubstr("DoRA"));
  EXPECT_THAT(error_line({"train", "--target_parameters", "experts.gate_up_proj"}), HasSubstr("LoRA"));
  EXPECT_THAT(error_line({"train"}, ExitCode::usage, {"TESSERA_NUM_LABELS=8"}),
              HasSubstr("environment TESSERA_NUM_LABELS"));
  EXPECT_THAT(error_line_of_yaml("rope_scaling: {type: yarn}\n"), HasSubstr("config.json"));
}

TEST(Unsupported, KeysOfOtherTools) {
  for (const char* yaml :
       {"zero_optimization: {zero_hpz_partition_size: 8}\n", "megatron_lm_config: {megatron_lm_tp_degree: 2}\n"})
    EXPECT_THAT(error_line_of_yaml(yaml), HasSubstr("not built yet")) << yaml;
  for (const char* yaml :
       {"fsdp_config: {fsdp_offload_params: false}\n", "deepspeed_config: {offload_optimizer_device: none}\n",
        "zero_optimization: {offload_param: {device: none}}\n", "zero_optimization: {zero_quantized_weights: false}\n",
        "zero_optimization: {zero_hpz_partition_size: 1}\n", "megatron_lm_config: null\n"})
    EXPECT_NO_THROW((void)options_of_yaml(yaml)) << yaml;
}

TEST(Offload, InTheWordsOfOtherTools) {
  const auto offload = [](const Options& options) {
    return options.text("offload_optimizer") + " " + options.text("offload_params");
  };
  EXPECT_EQ(offload(parsed({"train"}).options), "none none");
  EXPECT_EQ(offload(parsed({"train", "--offload_optimizer", "cpu"}).options), "cpu none");
  EXPECT_EQ(offload(parsed({"train", "--offload_optimizer"}).options), "cpu none");
  for (const char* flag : {"--cpu_offload", "--offload_param=cpu", "--offload_params=true"})
    EXPECT_EQ(offload(parsed({"train", flag}).options), "none cpu") << flag;
  EXPECT_EQ(offload(parsed({"train", "--deepspeed", "zero2_offload"}).options), "cpu none");
  EXPECT_EQ(offload(parsed({"train", "--deepspeed", "zero3_offload"}).options), "none cpu");
  EXPECT_EQ(parsed({"train", "--deepspeed", "zero3_offload"}).options.text("sharding_strategy"), "zero3");
  EXPECT_EQ(offload(parsed({"train", "--fsdp", "full_shard auto_wrap offload"}).options), "none cpu");
  EXPECT_EQ(offload(options_of_yaml("fsdp_config: {fsdp_offload_params: true}\n")), "none cpu");
  EXPECT_EQ(offload(options_of_yaml("deepspeed_config: {offload_optimizer_device: cpu}\n")), "cpu none");
  EXPECT_EQ(offload(options_of_yaml("zero_optimization: {offload_optimizer: {device: cpu, pin_memory: true}}\n")),
            "cpu none");
  EXPECT_EQ(offload(options_of_yaml("zero_optimization: {offload_param: {device: cpu}}\n")), "none cpu");
  EXPECT_EQ(offload(options_of_yaml("zero_optimization: {cpu_offload: true}\n")), "cpu none");
  for (const char* tier : {"disk", "nvme"}) {
    EXPECT_EQ(offload(parsed({"train", "--offload_optimizer", tier}).options), "disk none");
    EXPECT_EQ(offload(parsed({"train", "--offload_params", tier}).options), "none disk");
  }
  const Options deepspeed = options_of_yaml(
      "zero_optimization: {offload_optimizer: {device: nvme, nvme_path: /local, pipeline_read: true}}\n");
  EXPECT_EQ(offload(deepspeed) + " " + deepspeed.text("nvme_path"), "disk none /local");
  const Options accelerate =
      options_of_yaml("deepspeed_config: {offload_param_device: nvme, offload_param_nvme_path: /local}\n");
  EXPECT_EQ(offload(accelerate) + " " + accelerate.text("nvme_path"), "none disk /local");
  EXPECT_FALSE(options_of_yaml("deepspeed_config: {offload_param_nvme_path: none}\n").has("nvme_path"));
}

TEST(Offload, AnOptionPrecedesABlockOfTheSameCommandLine) {
  const std::string block = R"({"offload_params": true})";
  EXPECT_EQ(parsed({"train", "--fsdp_config", block}).options.text("offload_params"), "cpu");
  for (const std::vector<std::string>& line :
       {std::vector<std::string>{"--offload_params", "disk", "--fsdp_config", block},
        {"--fsdp_config", block, "--offload_params", "disk"}}) {
    std::vector<std::string> arguments{"train"};
    arguments.insert(arguments.end(), line.begin(), line.end());
    EXPECT_EQ(parsed(arguments).options.text("offload_params"), "disk");
  }
}

TEST(Offload, ActivationsInTheWordsOfOtherTools) {
  const auto offloads = [](const Options& options) { return options.flag("offload_activations"); };
  EXPECT_FALSE(offloads(parsed({"train"}).options));
  for (const char* flag : {"--offload_activations", "--activation_offloading=true", "--activation-cpu-offload"})
    EXPECT_TRUE(offloads(parsed({"train", flag}).options)) << flag;
  for (const char* yaml :
       {"activation_checkpointing: {cpu_checkpointing: true}\n", "compile: {offload_activation: true}\n",
        "fsdp_config: {fsdp_activation_cpu_offload: true}\n", "fsdp_config: {activation_cpu_offload: true}\n",
        "fsdp_config: {fsdp_activation_checkpointing_offload: true}\n"})
    EXPECT_TRUE(offloads(options_of_yaml(yaml))) << yaml;
  for (const char* yaml :
       {"activation_checkpointing: {cpu_checkpointing: false}\n", "fsdp_config: {activation_cpu_offload: false}\n"})
    EXPECT_FALSE(offloads(options_of_yaml(yaml))) << yaml;
}

TEST(Offload, TwoTiersOrDirectoriesContradict) {
  const std::string both = "Keep one of the two";
  EXPECT_THAT(error_line({"train", "--offload_params", "disk", "--fsdp", "full_shard offload"}), HasSubstr(both));
  EXPECT_THAT(error_line({"train", "--fsdp", "full_shard offload", "--offload_params", "disk"}),
              HasSubstr("--offload_params is cpu, and it is also disk"));
  EXPECT_THAT(error_line({"train", "--deepspeed", "zero2_offload", "--offload_optimizer", "none"}), HasSubstr(both));
  EXPECT_THAT(error_line_of_yaml("zero_optimization:\n  cpu_offload: true\n  offload_optimizer: {device: nvme}\n"),
              HasSubstr("conf.yaml:2; conf.yaml:3"));
  const std::string paths = "zero_optimization: {offload_optimizer: {device: nvme, nvme_path: /a}, offload_param: ";
  EXPECT_THAT(error_line_of_yaml(paths + "{device: nvme, nvme_path: /b}}\n"), HasSubstr("--nvme_path is /a"));
  EXPECT_EQ(options_of_yaml(paths + "{device: nvme, nvme_path: /a}}\n").text("nvme_path"), "/a");
  for (const std::vector<std::string>& line :
       {std::vector<std::string>{"train", "--offload_params", "cpu", "--fsdp", "full_shard offload"},
        {"train", "--offload_params", "disk", "--offload_params", "cpu"}})
    EXPECT_EQ(parsed(line).options.text("offload_params"), "cpu");
  EXPECT_EQ(
      parsed({"train", "--offload_params", "disk"}, {"TESSERA_OFFLOAD_PARAMS=cpu"}).options.text("offload_params"),
      "disk");
}

TEST(Int8, KeysOfDeepSpeedAndTheirOptions) {
  const Options all = options_of_yaml(
      "zero_optimization: {zero_quantized_gradients: true, zero_quantized_weights: true, "
      "zero_quantized_nontrainable_weights: true}\n");
  EXPECT_EQ(all.text("reduce_dtype"), "int8");
  EXPECT_EQ(all.text("gather_dtype"), "int8");
  const Options frozen = options_of_yaml("zero_optimization: {zero_quantized_nontrainable_weights: true}\n");
  EXPECT_EQ(frozen.text("gather_dtype"), "int8_frozen");
  EXPECT_EQ(frozen.text("reduce_dtype"), "fp32");
  EXPECT_EQ(options_of_yaml("zero_optimization: {zero_quantized_gradients: false}\n").text("reduce_dtype"), "fp32");
  EXPECT_EQ(parsed({"train", "--zero_quantized_gradients", "true"}).options.text("reduce_dtype"), "int8");
  EXPECT_EQ(parsed({"train", "--reduce_dtype", "int8"}).options.text("compress_axes"), "across_nodes");
}

TEST(UseCpu, ChoosesTheBackend) {
  const auto backend = [](const Options& options) { return options.text("backend"); };
  EXPECT_EQ(backend(options_of_yaml("use_cpu: true\n")), "cpu");
  EXPECT_EQ(backend(options_of_yaml("use_cpu: false\n")), "auto");
  EXPECT_TRUE(options_of_yaml("use_cpu: false\n").without_effect.empty());
  EXPECT_EQ(backend(options_of_yaml("use_cpu: false\nbackend: cpu\n")), "cpu");
  EXPECT_EQ(backend(parsed({"train", "--use_cpu"}).options), "cpu");
  EXPECT_EQ(backend(parsed({"train", "--use_cpu", "--backend", "auto"}).options), "cpu");
  EXPECT_EQ(backend(parsed({"train", "--use_cpu", "false"}, {"TESSERA_BACKEND=cpu"}).options), "auto");
  EXPECT_EQ(backend(parsed({"train", "--backend", "cuda"}, {"TESSERA_USE_CPU=true"}).options), "cuda");
  EXPECT_EQ(parsed({"train", "--use_cpu"}).options.value("backend").source.text, "command line --use_cpu");
  EXPECT_THAT(error_line({"train", "--use_cpu", "--backend", "cuda"}), HasSubstr("Keep one of the two"));
}

TEST(NoEffect, IsReported) {
  const Options options = parsed({"train", "--reduce_bucket_size", "5e8"}).options;
  ASSERT_EQ(options.without_effect.size(), 1u);
  EXPECT_THAT(options.without_effect[0], HasSubstr("--reduce_bucket_size 5e8 has no effect: gradients"));
}

TEST(Shape, StartsFromScratch) {
  EXPECT_TRUE(parsed({"train", "--shape", "small"}).options.flag("from_scratch"));
  EXPECT_FALSE(parsed({"plan", "--shape", "small"}).options.flag("from_scratch"));
  EXPECT_THAT(error_line({"train", "--shape", "small", "--from_scratch", "false"}),
              HasSubstr("--shape has no weights"));
  EXPECT_THAT(error_line({"train", "--shape", "smal"}), HasSubstr("expected"));
}

}  // namespace
}  // namespace tessera::jobs
