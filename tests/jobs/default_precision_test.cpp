// SPDX-License-Identifier: Apache-2.0
// The dtype of a run where no option says it, with the abilities of GPU and CPU given; what a resumed run takes from
// its checkpoint.
#include "jobs/cli/session/default_precision.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jobs/cli/session/precision.hpp"
#include "runtime/base/log.hpp"
#include "tests/io/files.hpp"
#include "tests/jobs/parse.hpp"

namespace tessera::jobs {
namespace {

using testing::HasSubstr;

constexpr PrecisionFacts with_units{.has_bf16 = true}, without{}, gpu{.on_gpu = true, .has_bf16 = true};

PrecisionFacts weights(PrecisionFacts facts, std::optional<DType> stored, std::optional<DType> named = {}) {
  facts.stored = stored;
  facts.named = named;
  return facts;
}

void expect_choice(const PrecisionFacts& facts, DType compute, const std::string& why, int warning = 0) {
  const DefaultPrecision choice = default_precision(facts);
  EXPECT_EQ(choice.compute, compute) << why;
  EXPECT_EQ(choice.why, why);
  EXPECT_EQ(choice.warning, warning) << why;
  EXPECT_EQ(choice.warned.empty(), warning == 0) << why;
}

constexpr const char* no_units = ", and not every rank's CPU has bf16 instructions (AVX512-BF16, AMX-BF16)";

TEST(DefaultPrecision, IsTheWeightsOwn) {
  for (const PrecisionFacts& place : {with_units, without, gpu})
    expect_choice(weights(place, DType::f32), DType::f32, "the weights are fp32");
  for (const PrecisionFacts& place : {with_units, gpu}) {
    expect_choice(weights(place, DType::bf16), DType::bf16, "the weights are bf16");
    expect_choice(weights(place, DType::f16), DType::bf16, "the weights are fp16, computed in bf16", 68);
    expect_choice(weights(place, DType::f16, DType::bf16), DType::bf16, "the weights are fp16, computed in bf16");
  }
  expect_choice(weights(without, DType::bf16), DType::f32, std::string("the weights are bf16") + no_units);
  expect_choice(weights(without, DType::f16), DType::f32, std::string("the weights are fp16") + no_units);
  EXPECT_THAT(default_precision(weights(gpu, DType::f16)).warned, HasSubstr("--mixed_precision fp16"));
}

TEST(DefaultPrecision, WhatTheWeightsAreCountsMoreThanConfigJson) {
  expect_choice(weights(gpu, DType::f32, DType::bf16), DType::f32, "the weights are fp32", 69);
  expect_choice(weights(gpu, DType::bf16, DType::f32), DType::bf16, "the weights are bf16", 69);
  expect_choice(weights(without, DType::bf16, DType::f32), DType::f32, std::string("the weights are bf16") + no_units);
  expect_choice(weights(gpu, DType::bf16, DType::bf16), DType::bf16, "the weights are bf16");
  // Quantized weights, or none: only config.json knows.
  expect_choice(weights(gpu, {}, DType::bf16), DType::bf16, "config.json says bf16");
  expect_choice(weights(gpu, {}, DType::f32), DType::f32, "config.json says fp32");
  expect_choice(gpu, DType::f32, "config.json names no dtype");
}

TEST(DefaultPrecision, FromScratchIsBf16OnGpusAndFp32OnCpus) {
  PrecisionFacts scratch = gpu;
  scratch.from_scratch = true;
  expect_choice(scratch, DType::bf16, "from scratch on GPUs");
  scratch.bf16_is_off = true;
  expect_choice(scratch, DType::f32, "from scratch, and --bf16 is false");
  scratch = with_units;
  scratch.from_scratch = true;
  expect_choice(scratch, DType::f32, "from scratch on CPUs");
}

TEST(DefaultPrecision, OfACheckpointIsItsRuns) {
  PrecisionFacts facts = weights(with_units, DType::bf16, DType::f32);
  facts.trained = true;
  expect_choice(facts, DType::bf16, "its run computed in bf16");
  facts = weights(gpu, DType::f32, DType::bf16);
  facts.trained = true;
  expect_choice(facts, DType::f32, "its run computed in fp32");
}

/// What `line` computes in, and why, with config.json `text`.
std::string decided(const std::vector<std::string>& line, const std::string& text, const PrecisionPlace& place) {
  Options options = parsed(line).options;
  decide_precision(options, {.text = text, .path = "config.json"}, place);
  return std::string(name_of(precision_of(options).compute)) + ", " + precision_source(options);
}

TEST(DefaultPrecision, OptionsOverruleIt) {
  constexpr PrecisionPlace place{.on_gpu = true, .has_bf16 = true};
  const std::string bf16 = R"({"torch_dtype": "bfloat16"})";
  EXPECT_EQ(decided({"plan", "--stage", "sft"}, bf16, place), "bf16, default: config.json says bf16");
  EXPECT_EQ(decided({"plan"}, bf16, place), "bf16, default: from scratch on GPUs");  // without weights
  EXPECT_EQ(decided({"train", "--from_scratch"}, bf16, {}), "fp32, default: from scratch on CPUs");
  EXPECT_EQ(decided({"eval"}, bf16, place), "bf16, default: config.json says bf16");
  EXPECT_EQ(decided({"eval", "--mixed_precision", "no"}, bf16, place), "fp32, --mixed_precision: command line");
  EXPECT_EQ(decided({"eval", "--torch_dtype", "auto"}, bf16, place), "bf16, default: config.json says bf16");
  EXPECT_EQ(decided({"sft", "--fp16"}, bf16, place), "fp16, --fp16: command line");
  EXPECT_EQ(decided({"sft", "--bf16", "false"}, bf16, place),
            "fp32, default: config.json says bf16, and --bf16 is false");
  EXPECT_EQ(precision_of(parsed({"sft", "--bf16", "false"}, {"TESSERA_MIXED_PRECISION=bf16"}).options).compute,
            DType::f32);
  EXPECT_THROW((void)precision_of(parsed({"sft", "--no-bf16", "--mixed_precision", "bf16"}).options), Error);
  EXPECT_EQ(decided({"sft", "--mixed_precision", "auto"}, bf16, place), "bf16, auto: config.json says bf16");
  EXPECT_EQ(decided({"bench", "step"}, bf16, place), "fp32, default: bench");
  EXPECT_EQ(parsed({"bench", "step"}).options.text("gradient_checkpointing"), "none");
  EXPECT_EQ(parsed({"bench", "step", "--gradient_checkpointing", "auto"}).options.text("gradient_checkpointing"),
            "auto");
  // Quantized to 4 bits, what its 4 bits are computed in.
  const std::string nf4 = R"({"torch_dtype": "float16", "quantization_config": {"quant_method": "bitsandbytes",
    "load_in_4bit": true, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": "bfloat16"}})";
  EXPECT_EQ(decided({"eval"}, nf4, place), "bf16, default: config.json says bf16");
}

TEST(DefaultPrecision, ABlockOfDeepSpeedThatIsOffTurnsBf16Off) {
  const auto compute = [](const std::string& yaml) {
    Options options = options_of_yaml("stage: sft\n" + yaml);
    decide_precision(options, {.text = R"({"dtype": "bfloat16"})", .path = "config.json"}, {.has_bf16 = true});
    return precision_of(options).compute;
  };
  EXPECT_EQ(compute("bf16: {enabled: false}\n"), DType::f32);
  EXPECT_EQ(compute("bf16: false\n"), DType::f32);
  EXPECT_THROW((void)compute("bf16: {enabled: false}\nmixed_precision: bf16\n"), Error);  // one file says both
  for (const char* silent :
       {"", "bf16: {enabled: auto}\n", "bf16: {check_grad_overflow: false}\n", "fp16: {enabled: false}\n"})
    EXPECT_EQ(compute(silent), DType::bf16) << silent;
}

TEST(DefaultPrecision, ReadsTheTypeOfMostElements) {
  const test::TempDir folder;
  folder.file("model.safetensors",
              test::safetensors_of(R"({"a": {"dtype": "BF16", "shape": [3, 3], "data_offsets": [0, 18]},
                                       "b": {"dtype": "F16", "shape": [3], "data_offsets": [18, 24]},
                                       "c": {"dtype": "F32", "shape": [2, 2], "data_offsets": [24, 40]}})",
                                   40));
  const auto chosen = [&](const char* config) {
    Options options = parsed({"eval"}).options;
    decide_precision(options, {.text = config, .path = "config.json", .directory = folder.path()}, {.has_bf16 = true});
    return precision_source(options);
  };
  EXPECT_EQ(chosen("{}"), "default: the weights are bf16");
  const std::int64_t before = log::warnings();
  EXPECT_EQ(chosen(R"({"dtype": "float32"})"), "default: the weights are bf16");
  EXPECT_EQ(log::warnings(), before + 1) << "W069";
}

TEST(DefaultPrecision, WhatDependsOnItIsCheckedThen) {
  const auto refused = [](std::vector<std::string> line, const char* torch_dtype) -> std::string {
    try {
      (void)decided(line, std::string(R"({"torch_dtype": ")") + torch_dtype + "\"}",
                    {.on_gpu = true, .has_bf16 = true});
    } catch (const Error& error) { return error.line(); }
    return "";
  };
  EXPECT_THAT(refused({"sft", "--reduce_dtype", "bf16"}, "float32"), HasSubstr("computes in fp32"));
  EXPECT_EQ(refused({"sft", "--reduce_dtype", "bf16"}, "bfloat16"), "");
  EXPECT_THAT(refused({"sft", "--attention", "cudnn"}, "float32"), HasSubstr("needs bf16 or fp16"));
  EXPECT_EQ(refused({"sft", "--attention", "cudnn"}, "bfloat16"), "");
  EXPECT_THAT(refused({"sft", "--hysteresis", "2"}, "bfloat16"), HasSubstr("--mixed_precision fp16 alone needs"));
}

TEST(DefaultPrecision, TheSavedModelOf16BitsFollowsIt) {
  const auto saved = [](const char* torch_dtype) {
    Options options =
        options_of_yaml("stage: sft\nzero_optimization: {stage3_gather_16bit_weights_on_model_save: true}\n");
    decide_precision(options,
                     {.text = std::string(R"({"torch_dtype": ")") + torch_dtype + "\"}", .path = "config.json"},
                     {.on_gpu = true, .has_bf16 = true});
    return options.text("save_dtype");
  };
  EXPECT_EQ(saved("bfloat16"), "bf16");
  EXPECT_EQ(saved("float32"), parsed({"train"}).options.text("save_dtype"));
}

}  // namespace
}  // namespace tessera::jobs
