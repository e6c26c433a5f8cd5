// SPDX-License-Identifier: Apache-2.0
// Configuration files: precedence, sources, and the keys of accelerate and DeepSpeed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "jobs/cli/session/precision.hpp"
#include "jobs/cli/session/strategy.hpp"
#include "tests/jobs/parse.hpp"

namespace tessera::jobs {
namespace {

using testing::HasSubstr;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() / ("tessera-config-files-" + std::to_string(::getpid()));
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string file(const std::string& name, const std::string& text) {
    const std::string path = (directory_ / name).string();
    std::ofstream(path) << text;
    return path;
  }
  std::filesystem::path directory_;
};
using Precedence = Files;

TEST_F(Precedence, LaterSourcesWin) {
  const std::string one = file("one.yaml", "seed: 1\nmax_length: 11\nlearning_rate: 1e-3\nglobal_batch_size: 6\n");
  const std::string two = file("two.json", "{\"seed\": 2, \"max_length\": 22, \"learning_rate\": 0.002}");
  const Options options =
      parsed({"train", "--seed", "4", one, two}, {"TESSERA_SEED=3", "TESSERA_MAX_LENGTH=33", "HOME=/"}).options;
  EXPECT_EQ(options.integer("seed"), 4);
  EXPECT_EQ(options.value("seed").source.text, "command line");
  EXPECT_EQ(options.integer("max_length"), 33);
  EXPECT_EQ(options.value("max_length").source.text, "environment TESSERA_MAX_LENGTH");
  EXPECT_EQ(options.real("learning_rate"), 0.002);
  EXPECT_EQ(options.integer("global_batch_size"), 6);
  EXPECT_EQ(options.value("global_batch_size").source.text, one + ":4");
  EXPECT_EQ(options.value("weight_decay").source.text, "default");
  const nlohmann::json json = nlohmann::json::parse(options.json());
  EXPECT_EQ(json["seed"]["value"], 4);
  EXPECT_EQ(json["seed"]["source"], "command line");
  EXPECT_EQ(json["from_scratch"]["value"], false);
}

TEST_F(Precedence, FilesOverrideThePreset) {
  const std::string conf = file("conf.yaml", "zero_stage: 1\n");
  EXPECT_EQ(parsed({"train", "--preset", "zero3", conf}).options.text("sharding_strategy"), "zero1");
  EXPECT_EQ(parsed({"train", "--preset", "hybrid"}).options.text("sharding_strategy"), "hybrid_shard");
  EXPECT_EQ(parsed({"train", "--zero_stage", "2", conf}).options.text("sharding_strategy"), "zero2");
}

TEST_F(Precedence, UnknownKeysAndVariablesAreErrors) {
  const std::string conf = file("conf.yaml", "seed: 1\nmax_lenght: 3\n");
  const std::string line = error_line({"train", conf});
  EXPECT_THAT(line, HasSubstr("max_lenght"));
  EXPECT_THAT(line, HasSubstr(conf + ":2"));
  EXPECT_THAT(line, HasSubstr("max_length"));
  EXPECT_THAT(error_line({"train"}, ExitCode::usage, {"TESSERA_SEEED=1"}), HasSubstr("environment TESSERA_SEEED"));
  EXPECT_NO_THROW((void)parsed({"train"}, {"TESSERA_ISA=avx2"}));
  EXPECT_THAT(error_line({"train", (directory_ / "nothing.yaml").string()}, ExitCode::data), HasSubstr("nothing.yaml"));
}

TEST_F(Precedence, TwoNamesOfAnOptionInOneSourceMustAgree) {
  const std::string differ = file("differ.yaml", "lr: 1e-3\nlearning_rate: 2e-3\n");
  EXPECT_THAT(error_line({"train", differ}),
              HasSubstr("--learning_rate is 1e-3, and it is also 2e-3 [" + differ + ":1; " + differ + ":2]"));
  const std::string blocks = file("blocks.json", R"({"per_device_train_batch_size": 3,
    "train_micro_batch_size_per_gpu": 2})");
  EXPECT_THAT(error_line({"train", blocks}), HasSubstr("--per_device_train_batch_size is 3, and it is also 2"));
  EXPECT_THAT(error_line({"train"}, ExitCode::usage, {"TESSERA_SEQ_LEN=1", "TESSERA_MAX_LENGTH=2"}),
              HasSubstr("[environment TESSERA_SEQ_LEN; environment TESSERA_MAX_LENGTH]"));
  const std::string agree = file("agree.yaml", "lr: 1e-3\nlearning_rate: 0.001\n");
  EXPECT_EQ(parsed({"train", agree}).options.real("learning_rate"), 0.001);
  EXPECT_EQ(parsed({"train", "--lr", "1", "--learning_rate", "2"}).options.real("learning_rate"), 2);
}

TEST_F(Precedence, AModelsConfigIsNoFileOfOptions) {
  const std::string model = file("config.json", R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 256})");
  EXPECT_THAT(error_line({"train", model}), HasSubstr("the config.json of a model, not a file of options"));
}

TEST_F(Precedence, DeepSpeedFileOnTheCommandLine) {
  const std::string ds =
      file("ds.json", R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": "auto", "gradient_clipping": 0.5,
    "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 5e8, "offload_optimizer": {"device": "none"}},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "betas": [0.8, 0.95], "eps": 1e-9, "weight_decay": 0.3}},
    "bf16": {"enabled": false}, "steps_per_print": 7})");
  const Options options = parsed({"train", "--deepspeed", ds, "--learning_rate", "0.02"}).options;
  EXPECT_EQ(options.text("sharding_strategy"), "zero2");
  EXPECT_EQ(options.integer("global_batch_size"), 32);
  EXPECT_FALSE(options.has("per_device_train_batch_size"));
  EXPECT_EQ(options.real("max_grad_norm"), 0.5);
  EXPECT_EQ(options.real("learning_rate"), 0.02);
  EXPECT_EQ(options.real("adam_beta1"), 0.8);
  EXPECT_EQ(options.real("adam_beta2"), 0.95);
  EXPECT_EQ(options.integer("logging_steps"), 5);
  bool harmless = false;
  for (const ExternalKey& key : options.external_keys)
    harmless =
        harmless || (key.key == "zero_optimization.overlap_comm" && key.outcome == ExternalKey::Outcome::harmless);
  EXPECT_TRUE(harmless);
}

TEST(Accelerate, GeneratedFile) {
  const Options options = options_of_yaml(
      "compute_environment: LOCAL_MACHINE\ndebug: false\ndistributed_type: FSDP\ndowncast_bf16: "
      "'no'\nenable_cpu_affinity: "
      "false\n"
      "fsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_backward_prefetch: BACKWARD_PRE\n"
      "  fsdp_cpu_ram_efficient_loading: true\n  fsdp_forward_prefetch: false\n  fsdp_offload_params: false\n"
      "  fsdp_sharding_strategy: SHARD_GRAD_OP\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n  fsdp_sync_module_states: "
      "true\n"
      "  fsdp_use_orig_params: true\n  fsdp_activation_checkpointing: true\nmachine_rank: 0\nmain_training_function: "
      "main\n"
      "mixed_precision: 'no'\nnum_machines: 1\nnum_processes: 4\nrdzv_backend: static\nsame_network: true\ntpu_env: "
      "[]\n"
      "tpu_use_cluster: false\ntpu_use_sudo: false\nuse_cpu: false\n");
  EXPECT_EQ(options.text("sharding_strategy"), "zero2");
  EXPECT_EQ(options.integer("backward_prefetch"), 1);
  EXPECT_EQ(options.integer("forward_prefetch"), 0);
  EXPECT_EQ(options.text("gradient_checkpointing"), "full");
  EXPECT_GT(options.external_keys.size(), 15u);
}

TEST(Accelerate, NumbersAndVersionTwo) {
  EXPECT_EQ(options_of_yaml("fsdp_config: {fsdp_sharding_strategy: 1}").text("sharding_strategy"), "zero3");
  EXPECT_EQ(options_of_yaml("fsdp_config: {fsdp_sharding_strategy: 4}").text("sharding_strategy"), "hybrid_shard");
  EXPECT_EQ(
      options_of_yaml("fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: false}").text("sharding_strategy"),
      "zero2");
  EXPECT_EQ(
      options_of_yaml("fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: true}").text("sharding_strategy"),
      "zero3");
}

TEST(Accelerate, WrapPolicies) {
  const auto wrap = [](const std::string& keys) {
    return options_of_yaml("fsdp_config: {" + keys + "}").text("wrap_policy");
  };
  EXPECT_EQ(wrap("fsdp_version: 1"), "TRANSFORMER_BASED_WRAP");
  EXPECT_EQ(wrap("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP, fsdp_transformer_layer_cls_to_wrap: GPT2Block"),
            "TRANSFORMER_BASED_WRAP");
  EXPECT_EQ(wrap("fsdp_auto_wrap_policy: NO_WRAP"), "NO_WRAP");
  const Options by_size =
      options_of_yaml("fsdp_config: {fsdp_auto_wrap_policy: SIZE_BASED_WRAP, fsdp_min_num_params: 2000}");
  EXPECT_EQ(by_size.text("wrap_policy"), "SIZE_BASED_WRAP");
  EXPECT_EQ(by_size.integer("min_num_params"), 2000);
  EXPECT_EQ(wrap("min_num_params: 2000"), "SIZE_BASED_WRAP");  // as Hugging Face's Trainer
  EXPECT_EQ(wrap("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP, fsdp_min_num_params: 0"), "TRANSFORMER_BASED_WRAP");
  EXPECT_EQ(
      error_line_of_yaml("fsdp_config:\n  fsdp_auto_wrap_policy: NO_WRAP\n  fsdp_min_num_params: 2000\n"),
      "--min_num_params is for --wrap_policy SIZE_BASED_WRAP, and another is asked for [conf.yaml:2; conf.yaml:3]. "
      "Keep one of the two");
}

TEST(Strategies, OptionsOfWrapPolicies) {
  const auto wrap = [](const std::vector<std::string>& arguments) {
    Options options = parsed(arguments).options;
    options.decide("mixed_precision", "no", "of this test");
    shard::ShardPolicy policy;
    apply_policy(options, policy);
    return policy.wrap;
  };
  using Kind = shard::WrapPolicy::Kind;
  EXPECT_EQ(wrap({"train"}), shard::WrapPolicy());
  EXPECT_EQ(wrap({"train", "--blocks_per_unit", "3"}), (shard::WrapPolicy{.blocks_per_unit = 3}));
  EXPECT_EQ(wrap({"train", "--wrap_policy", "no_wrap"}).kind, Kind::model);
  EXPECT_EQ(wrap({"train", "--min_num_params", "50"}), (shard::WrapPolicy{.kind = Kind::size, .min_num_params = 50}));
  EXPECT_THAT(error_line({"train", "--blocks_per_unit", "3", "--min_num_params", "5"}), HasSubstr("Keep one"));
  EXPECT_THAT(error_line({"train", "--blocks_per_unit", "3", "--wrap_policy", "NO_WRAP"}), HasSubstr("Keep one"));
  EXPECT_THAT(error_line({"train", "--blocks_per_unit", "0"}), HasSubstr("blocks_per_unit"));
  EXPECT_THAT(error_line({"train", "--wrap_policy", "LAYERS"}),
              HasSubstr("TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or NO_WRAP"));
}

TEST(Accelerate, UnsupportedValuesAreErrors) {
  EXPECT_THAT(error_line_of_yaml("mixed_precision: fp8\n"), HasSubstr("conf.yaml:1"));
  EXPECT_THAT(error_line_of_yaml("zero_optimization:\n  stage: 3\n  offload_optimizer: {device: nvme, ratio: 0.5}\n"),
              HasSubstr("offload_optimizer"));
  EXPECT_THAT(error_line_of_yaml("fp16: {enabled: true, loss_scale: 128}\n"), HasSubstr("loss_scale"));
  EXPECT_THAT(error_line_of_yaml("deepspeed:\n  optimizer: {type: Lion}\n"), HasSubstr("Lion"));
  const Options sgd =
      options_of_yaml("deepspeed:\n  optimizer: {type: SGD, params: {momentum: 0.8, nesterov: true}}\n");
  EXPECT_EQ(sgd.text("optim"), "sgd");
  EXPECT_EQ(sgd.real("momentum"), 0.8);
  EXPECT_TRUE(sgd.flag("nesterov"));
}

TEST(Precision, NamesOfEveryTool) {
  const auto types = [](const Options& options) { return precision_of(options).str(); };
  EXPECT_EQ(types(options_of_yaml("mixed_precision: bf16\n")), "bf16, gradients reduced in fp32");
  EXPECT_EQ(types(options_of_yaml("bf16: true\n")), "bf16, gradients reduced in fp32");
  EXPECT_EQ(types(options_of_yaml("bf16: {enabled: true}\ncommunication_data_type: bfp16\n")),
            "bf16, gradients reduced in bf16");
  EXPECT_EQ(types(options_of_yaml("fp16: {enabled: true, loss_scale: 0, hysteresis: 2}\n")),
            "fp16, gradients reduced in fp32");
  EXPECT_EQ(types(options_of_yaml("fp16: {enabled: false}\nmixed_precision: 'no'\n")), "fp32");
  EXPECT_EQ(types(parsed({"train", "--fp16"}).options), "fp16, gradients reduced in fp32");
  EXPECT_EQ(types(parsed({"train", "--mixed_precision", "fp32"}).options), "fp32");
}

TEST(Precision, LaterSourcesWin) {
  const Options options = parsed({"train", "--mixed_precision", "no"}, {"TESSERA_BF16=true"}).options;
  EXPECT_EQ(precision_of(options).compute, DType::f32);
  EXPECT_EQ(precision_source(options), "--mixed_precision: command line");
  EXPECT_EQ(asked_compute(parsed({"train", "--bf16", "false"}, {"TESSERA_BF16=true"}).options), std::nullopt);
  EXPECT_EQ(asked_compute(parsed({"train", "--mixed_precision", "auto"}, {"TESSERA_BF16=true"}).options), std::nullopt);
  EXPECT_EQ(asked_compute(parsed({"train", "--mixed_precision", "auto", "--fp16"}).options), DType::f16);
}

TEST(Precision, LossScaleIsForFp16Only) {
  EXPECT_FALSE(loss_scale_of(parsed({"train", "--bf16"}).options));
  const auto scale = loss_scale_of(
      options_of_yaml("fp16: {enabled: true, initial_scale_power: 12, loss_scale_window: 500, min_loss_scale: 4}\n"));
  ASSERT_TRUE(scale);
  EXPECT_EQ(scale->initial, 4096);
  EXPECT_EQ(scale->window, 500);
  EXPECT_EQ(scale->least, 4);
  for (const auto& arguments : {std::vector<std::string>{"train", "--bf16", "--loss_scale_window", "9"},
                                {"train", "--fp16", "--min_loss_scale", "3"},
                                {"train", "--fp16", "--initial_scale_power", "2", "--min_loss_scale", "8"}})
    EXPECT_THROW((void)loss_scale_of(parsed(arguments).options), Error) << arguments.back();
}

TEST(Precision, HysteresisOfDeepSpeed) {
  const auto of = [](const std::string& text) { return loss_scale_of(options_of_yaml(text)).value(); };
  EXPECT_EQ(loss_scale_of(parsed({"train", "--fp16"}).options)->hysteresis, 1);
  EXPECT_EQ(of("fp16: {enabled: true, hysteresis: 4}\n").hysteresis, 4);
  EXPECT_TRUE(of("fp16: {enabled: true, consecutive_hysteresis: true}\n").consecutive_hysteresis);
  // What DeepSpeed's block leaves out has DeepSpeed's defaults; every other source overrides them.
  EXPECT_EQ(of("fp16: {enabled: true}\n").hysteresis, 2);
  EXPECT_EQ(of("fp16: {enabled: true}\n").window, 1000);
  EXPECT_EQ(of("fp16: {enabled: true}\nhysteresis: 1\nloss_scale_window: 9\n").hysteresis, 1);
  EXPECT_THAT(error_line({"train", "--fp16", "--hysteresis", "0"}), HasSubstr("hysteresis 0"));
  EXPECT_THROW((void)loss_scale_of(parsed({"train", "--bf16", "--hysteresis", "2"}).options), Error);
}

TEST(Precision, BlocksAreOffWithoutEnabled) {
  for (const char* yaml :
       {"fp16: {loss_scale: 128, loss_scale_window: 5}\n", "bf16: {bf16_master_weights_and_grads: true}\n",
        "fp16: {enabled: false, loss_scale: 128}\n"})
    EXPECT_EQ(asked_compute(options_of_yaml(yaml)), std::nullopt) << yaml;
  EXPECT_THAT(error_line_of_yaml("fp16: {los_scale: 128}\n"), HasSubstr("unknown key fp16.los_scale"));
  // The scaler's settings are for a precision that another source asks for.
  EXPECT_EQ(loss_scale_of(options_of_yaml("fp16: {loss_scale_window: 5}\nmixed_precision: fp16\n"))->window, 5);
}

TEST(Blocks, AreOffWithoutEnabledWhereDeepSpeedsDefaultIsFalse) {
  for (const char* off : {"flops_profiler: {profile_step: 1}", "amp: {opt_level: O1}", "wandb: {project: mine}",
                          "autotuning: {fast: true}", "elasticity: {max_train_batch_size: 9}"}) {
    const Options options = options_of_yaml(std::string(off) + "\n");
    EXPECT_EQ(options.text("report_to"), "tensorboard") << off;
    ASSERT_EQ(options.external_keys.size(), 1u) << off;
    EXPECT_EQ(options.external_keys[0].outcome, ExternalKey::Outcome::harmless) << off;
  }
  for (const char* on : {"sparse_attention: {mode: fixed}", "weight_quantization: {post_init_quant: {}, bits: 8}",
                         "flops_profiler: {enabled: true}", "datastates_ckpt: {host_cache_size: 16}"})
    EXPECT_THAT(error_line_of_yaml(std::string(on) + "\n"), HasSubstr("not built yet")) << on;
}

TEST(Blocks, UnknownKeysAreErrors) {
  const std::string line = error_line_of_yaml("zero_optimization:\n  stge: 3\n");
  EXPECT_THAT(line, HasSubstr("zero_optimization.stge"));
  EXPECT_THAT(line, HasSubstr("conf.yaml:2"));
  EXPECT_THAT(line, HasSubstr("stage"));
  EXPECT_THAT(error_line_of_yaml("fsdp_config: 3\n"), HasSubstr("block"));
  EXPECT_THAT(error_line_of_yaml("seed: {a: 1}\n"), HasSubstr("seed"));
}

TEST(Strategies, EveryNameAndContradictions) {
  const auto strategy = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "train");
    return parsed(arguments).options.text("sharding_strategy");
  };
  EXPECT_EQ(strategy({}), "zero3");
  EXPECT_EQ(strategy({"--zero_stage", "0"}), "zero0");
  EXPECT_EQ(strategy({"--sharding_strategy", "shard_grad_op"}), "zero2");
  EXPECT_EQ(strategy({"--fsdp", "fsdp2"}), "zero3");
  EXPECT_EQ(strategy({"--fsdp", "full_shard auto_wrap"}), "zero3");
  EXPECT_EQ(strategy({"--parallel_strategy", "ddp"}), "zero0");
  EXPECT_EQ(strategy({"--deepspeed", "zero1"}), "zero1");
  EXPECT_EQ(strategy({"--sharding_strategy", "HYBRID_SHARD", "--zero_stage", "3"}), "hybrid_shard");
  EXPECT_EQ(strategy({"--fsdp", "full_shard", "--zero_stage", "3"}), "zero3");
  EXPECT_EQ(error_line({"train", "--zero_stage", "2", "--fsdp", "full_shard"}),
            "--fsdp asks for zero3, but --zero_stage for zero2 [command line]. Keep one of the two");
  EXPECT_EQ(error_line_of_yaml("zero_stage: 2\nfsdp: full_shard\n"),
            "--zero_stage asks for zero2, but --fsdp for zero3 [conf.yaml:1; conf.yaml:2]. Keep one of the two");
  EXPECT_THAT(error_line({"train", "--deepspeed", "zero1_offload"}), HasSubstr("offload"));
  EXPECT_THAT(error_line({"train", "--fsdp", "half_shard"}), HasSubstr("expected zero0"));
  EXPECT_THAT(error_line({"train", "--deepspeed", "zero5"}),
              HasSubstr("FSDP's name for one, or a DeepSpeed FILE.json"));
  EXPECT_THAT(error_line({"train", "--zero_stage", "4"}),
              HasSubstr("--zero_stage 4: expected 0, 1, 2 or 3 [command line]"));
}

TEST(Env, OptionsAreNotSetByVariablesOfAFile) {
  EXPECT_THAT(error_line_of_yaml("env: {TESSERA_MAX_STEPS: 3}\n"),
              AllOf(HasSubstr("env.TESSERA_MAX_STEPS has no effect"), HasSubstr("an option of the file: max_steps")));
}

TEST(Env, SetsVariablesThatAreNotSet) {
  ::unsetenv("TESSERA_TEST_OF_ENV");
  const Options options = options_of_yaml("env: {TESSERA_TEST_OF_ENV: hello}\n");
  EXPECT_STREQ(std::getenv("TESSERA_TEST_OF_ENV"), "hello");
  ::unsetenv("TESSERA_TEST_OF_ENV");
}

}  // namespace
}  // namespace tessera::jobs
