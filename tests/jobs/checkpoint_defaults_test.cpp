// SPDX-License-Identifier: Apache-2.0
// What a run that resumes keeps of its checkpoint: the global batch and the precision, unless a source sets them.
#include "jobs/cli/session/checkpoint_defaults.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "io/checkpoint/manifest.hpp"
#include "jobs/cli/session/precision.hpp"
#include "jobs/cli/session/preferences.hpp"
#include "jobs/cli/session/setup.hpp"
#include "tests/io/files.hpp"
#include "tests/jobs/parse.hpp"

namespace tessera::jobs {
namespace {

using testing::HasSubstr;

Options kept(std::vector<std::string> arguments, int world, std::int64_t batch, const std::string& dtype = "fp32",
             std::vector<std::string> environment = {}) {
  arguments.insert(arguments.begin(), {"train", "--dataset", "d.txt", "--model", "m"});
  Options options = parsed(std::move(arguments), std::move(environment)).options;
  keep_checkpoint_defaults(options, {batch, dtype}, "out/checkpoint-20", world);
  return options;
}

std::string batch(const Options& options, int world) {
  const plan::BatchPlan plan = batch_of(options, world);
  return strfmt("%ld = %ld x %d", plan.global_batch, plan.micro_batch, plan.accumulation);
}

TEST(CheckpointDefaults, TheGlobalBatchStaysOnAnyNumberOfRanks) {
  EXPECT_EQ(batch(kept({}, 1, 8), 1), "8 = 8 x 1");
  EXPECT_EQ(batch(kept({}, 4, 8), 4), "8 = 2 x 1");
  EXPECT_EQ(batch(kept({}, 3, 8), 3), "8 = 3 x 1");
  EXPECT_EQ(batch(kept({}, 16, 8), 16), "8 = 1 x 1") << "some ranks have none";
  EXPECT_EQ(batch(kept({}, 1, 32), 1), "32 = 8 x 4");
  EXPECT_EQ(batch(kept({}, 2, 100), 2), "100 = 8 x 7");
  const Options sft = kept({"--stage", "sft"}, 3, 16);
  EXPECT_EQ(batch(sft, 3), "16 = 1 x 6");
  EXPECT_THAT(stage_line(sft), testing::Not(HasSubstr("batch"))) << "they are no defaults of the stage";
  EXPECT_EQ(kept_defaults(sft, batch_of(sft, 3)),
            "global_batch_size 16 (micro-batch 1 x accumulation 6 on 3 ranks), mixed_precision fp32");
}

TEST(CheckpointDefaults, ABatchOfAnySourceIsTaken) {
  EXPECT_EQ(batch(kept({"--global_batch_size", "24"}, 2, 8), 2), "24 = 8 x 2");
  EXPECT_EQ(batch(kept({"--per_device_train_batch_size", "4"}, 2, 8), 2), "8 = 4 x 1");
  EXPECT_EQ(batch(kept({"--gradient_accumulation_steps", "3"}, 2, 8), 2), "48 = 8 x 3");
  EXPECT_EQ(batch(kept({}, 4, 8, "fp32", {"TESSERA_PER_DEVICE_TRAIN_BATCH_SIZE=8"}), 4), "32 = 8 x 1");
  const std::string file = testing::TempDir() + "batch_of_a_file.yaml";
  std::ofstream(file) << "train_batch_size: 12\n";
  EXPECT_EQ(batch(kept({"--config", file}, 4, 8), 4), "12 = 8 x 1");
  EXPECT_EQ(kept_defaults(kept({"--global_batch_size", "24"}, 2, 8, ""), {}), "");
}

TEST(CheckpointDefaults, ThePrecisionStaysUnlessOneIsGiven) {
  EXPECT_EQ(kept({}, 1, 8, "bf16").text("mixed_precision"), "bf16");
  EXPECT_EQ(kept({}, 1, 8, "fp32").text("mixed_precision"), "fp32");
  EXPECT_EQ(kept({"--fp16"}, 1, 8, "bf16").text("mixed_precision"), parsed({"train"}).options.text("mixed_precision"));
  EXPECT_EQ(kept({"--mixed_precision", "no"}, 1, 8, "bf16").text("mixed_precision"), "no");
  EXPECT_EQ(kept_defaults(kept({"--global_batch_size", "8"}, 1, 8, "bf16"), {}), "mixed_precision bf16");
}

TEST(CheckpointDefaults, ThePrecisionIsGivenByWhatAsksForIt) {
  const auto precision = [](const std::vector<std::string>& given, const std::string& dtype) -> std::string {
    const Options options = kept(given, 1, 8, dtype);
    const std::optional<DType> asked = asked_compute(options);
    return (asked ? name_of(*asked) : "open") + std::string(", ") + precision_source(options);
  };
  EXPECT_EQ(precision({}, "bf16"), "bf16, kept from out/checkpoint-20");
  EXPECT_EQ(precision({"--mixed_precision", "auto"}, "bf16"), "bf16, kept from out/checkpoint-20");
  EXPECT_EQ(precision({"--fp16", "false"}, "bf16"), "bf16, kept from out/checkpoint-20");
  EXPECT_EQ(precision({"--bf16", "false"}, "fp16"), "fp16, kept from out/checkpoint-20");
  EXPECT_EQ(precision({"--bf16", "false"}, "bf16"), "open, default") << "then it is fp32";
  EXPECT_EQ(precision({"--fp16", "false"}, "fp16"), "open, default");
  EXPECT_EQ(precision({"--mixed_precision", "auto", "--bf16"}, "fp32"), "bf16, --bf16: command line");
  const std::vector<std::string> qlora{"--tuner_type", "lora", "--quant_method", "bnb", "--quant_bits", "4"};
  std::vector<std::string> computes = qlora;
  computes.insert(computes.end(), {"--bnb_4bit_compute_dtype", "float32"});
  EXPECT_EQ(precision(qlora, "bf16"), "bf16, kept from out/checkpoint-20");
  EXPECT_EQ(precision(computes, "bf16"), "fp32, --bnb_4bit_compute_dtype: command line");
}

TEST(CheckpointDefaults, ADecidedPrecisionIsStillLeftOpen) {
  const auto refused = [](const std::vector<std::string>& given, const std::string& loaded) {
    std::vector<std::string> line{"train", "--dataset", "d.txt"};
    line.insert(line.end(), given.begin(), given.end());
    Options options = parsed(line).options;
    if (!asked_compute(options)) options.decide("mixed_precision", "no", "from scratch on CPUs");
    try {
      require_kept_defaults(options, {8, loaded}, {8, "fp32"}, "out/checkpoint-10");
    } catch (const Error&) { return true; }
    return false;
  };
  EXPECT_TRUE(refused({"--mixed_precision", "auto"}, "bf16"));
  EXPECT_TRUE(refused({"--fp16", "false"}, "bf16"));
  EXPECT_FALSE(refused({"--bf16", "false"}, "bf16"));
  EXPECT_FALSE(refused({"--mixed_precision", "no"}, "bf16"));
}

TEST(CheckpointDefaults, CheckpointingThatIsChosenAnewIsNotNamed) {
  Options options = parsed({"train", "--dataset", "d.txt", "--model", "m", "--global_batch_size", "8"}).options;
  keep_checkpoint_defaults(options, {8, "bf16", "auto"}, "out/checkpoint-20", 1);
  EXPECT_EQ(kept_defaults(options, {}), "mixed_precision bf16");
  options = parsed({"train", "--dataset", "d.txt", "--model", "m", "--global_batch_size", "8"}).options;
  keep_checkpoint_defaults(options, {8, "", "selective"}, "out/checkpoint-20", 1);
  EXPECT_EQ(kept_defaults(options, {}), "gradient_checkpointing selective");
}

TEST(CheckpointDefaults, TheGroupsOfTheKlStayAtAnyMicroBatch) {
  const auto group = [](std::vector<std::string> given, int world) {
    given.insert(given.begin(), {"kto", "--dataset", "d.jsonl", "--model", "m"});
    Options options = parsed(std::move(given)).options;
    keep_checkpoint_defaults(options, {.global_batch = 16, .kl_group = 4}, "out/checkpoint-20", world);
    check_preference_options(options);
    return kl_group(options, batch_of(options, world).micro_batch);
  };
  EXPECT_EQ(group({}, 2), 4);
  EXPECT_EQ(group({}, 16), 4) << "a micro-batch of one";
  EXPECT_EQ(group({"--per_device_train_batch_size", "2"}, 2), 4);
  EXPECT_EQ(group({"--kl_group_size", "3"}, 2), 3);
  EXPECT_EQ(group({"--loss_type", "apo_zero_unpaired"}, 2), 0);
}

TEST(CheckpointDefaults, AreReadFromNewAndOldManifests) {
  io::Manifest manifest;
  manifest.run_metadata = R"({"settings": {"kl_group_size": 4}})";
  EXPECT_EQ(checkpoint_defaults(manifest, "x").kl_group, 4);
  manifest.training = R"({"schedule": {"global_batch_size": 48, "learning_rate": 1e-3, "lr_scheduler_type": "constant",
                          "warmup_steps": 0}})";
  manifest.run_metadata = R"({"compute_dtype": "bf16", "settings": {"global_batch_size": 8}})";
  EXPECT_EQ(checkpoint_defaults(manifest, "x").global_batch, 48);
  EXPECT_EQ(checkpoint_defaults(manifest, "x").compute_dtype, "bf16");
  manifest.training = "{}";
  EXPECT_EQ(checkpoint_defaults(manifest, "x").global_batch, std::nullopt) << "without the schedule that it is of";
  manifest.run_metadata = R"({"compute_dtype": "fp8", "settings": {"global_batch_size": 8, "learning_rate": 1,
                             "lr_scheduler_type": "constant", "warmup_steps": 0}})";
  EXPECT_EQ(checkpoint_defaults(manifest, "x").global_batch, 8);
  EXPECT_EQ(checkpoint_defaults(manifest, "x").compute_dtype, "");
}

TEST(CheckpointDefaults, OlderManifestsLackWhatArgsJsonHas) {
  io::Manifest manifest;
  manifest.run_metadata = R"({"compute_dtype": "bf16", "gradient_checkpointing": "selective"})";
  const std::string args = R"({"gradient_checkpointing": {"value": "full", "source": "default of --stage sft"}})";
  EXPECT_EQ(checkpoint_defaults(manifest, "x", args).gradient_checkpointing, "selective");
  manifest.run_metadata = R"({"compute_dtype": "bf16"})";
  EXPECT_EQ(checkpoint_defaults(manifest, "x", args).gradient_checkpointing, "full");
  for (const char* other : {"", "no json", "[1]", R"({"gradient_checkpointing": 3})",
                            R"({"gradient_checkpointing": {"value": "sometimes"}})"})
    EXPECT_EQ(checkpoint_defaults(manifest, "x", other).gradient_checkpointing, "") << other;
  manifest.run_metadata = "{}";
  EXPECT_EQ(checkpoint_defaults(manifest, "x").compute_dtype, "fp32") << "all that there was when it was not recorded";
  Options options = parsed({"sft", "--dataset", "d.txt", "--model", "m"}).options;
  keep_checkpoint_defaults(options, {8, "bf16", "full"}, "out/checkpoint-20", 1);
  EXPECT_EQ(options.text("gradient_checkpointing"), "full");
  options = parsed({"sft", "--dataset", "d.txt", "--model", "m", "--gradient_checkpointing", "none"}).options;
  keep_checkpoint_defaults(options, {8, "bf16", "full"}, "out/checkpoint-20", 1);
  EXPECT_EQ(options.text("gradient_checkpointing"), "none");
}

TEST(CheckpointDefaults, AnOlderCheckpointWithOthersIsRefused) {
  const Options options = kept({}, 2, 8, "bf16"), none = parsed({"train", "--dataset", "d.txt"}).options;
  const CheckpointDefaults now{8, "bf16"};
  const auto refused = [&](const Options& of, const CheckpointDefaults& loaded) -> std::string {
    try {
      require_kept_defaults(of, loaded, now, "out/checkpoint-10");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      return error.line();
    }
    return "";
  };
  EXPECT_EQ(refused(options, {8, "bf16"}), "");
  EXPECT_THAT(refused(options, {16, "bf16"}), HasSubstr("out/checkpoint-10 was made with --global_batch_size 16"));
  EXPECT_THAT(refused(options, {8, "fp32"}), HasSubstr("Give --mixed_precision"));
  EXPECT_EQ(refused(options, {std::nullopt, ""}), "") << "of another type";
  EXPECT_EQ(refused(kept({"--global_batch_size", "8", "--bf16"}, 2, 8), {16, "fp32"}), "");
  EXPECT_EQ(refused(none, {8, "bf16"}), "");
  EXPECT_THAT(refused(none, {16, "bf16"}), HasSubstr("Start the run again"));
}

}  // namespace
}  // namespace tessera::jobs
