// SPDX-License-Identifier: Apache-2.0
// The parts of a run that options describe: optimizer, batch, strategy, model; and contradictions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "jobs/cli/commands/plan_axes.hpp"
#include "jobs/cli/commands/plan_tiers.hpp"
#include "jobs/cli/options/model_presets.hpp"
#include "jobs/cli/session/data_source.hpp"
#include "jobs/cli/session/gpu_choices.hpp"
#include "jobs/cli/session/log_lines.hpp"
#include "jobs/cli/session/precision.hpp"
#include "jobs/cli/session/setup.hpp"
#include "jobs/cli/session/strategy.hpp"
#include "jobs/cli/session/trainable.hpp"
#include "kernels/attention.hpp"
#include "tests/io/files.hpp"
#include "tests/jobs/parse.hpp"

namespace tessera::jobs {
namespace {

using testing::HasSubstr;

Options options_of(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "train");
  Options options = parsed(std::move(arguments)).options;
  if (!asked_compute(options)) options.decide("mixed_precision", "no", "of this test");
  return options;
}

template <class F>
std::string refused(const F& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(ExitCode::usage)) << error.line();
    return error.line();
  }
  ADD_FAILURE() << "not refused";
  return "";
}

TEST(Setup, Optimizers) {
  const auto of = [](std::vector<std::string> arguments) {
    return optimizer_options(options_of(std::move(arguments)));
  };
  for (const char* spelling : {"adamw", "adamw_torch", "adamw_torch_fused"})
    EXPECT_EQ(of({"--optim", spelling, "--adam_beta2", "0.95"}).kind, train::OptimizerKind::adamw) << spelling;
  for (const char* spelling : {"adamw_8bit", "adamw_bnb_8bit"})
    EXPECT_EQ(of({"--optim", spelling}).kind, train::OptimizerKind::adamw_8bit) << spelling;
  const train::OptimizerOptions sgd =
      of({"--optim", "sgd", "--sgd_momentum", "0.9", "--nesterov", "--weight_decay", "0.1"});
  EXPECT_EQ(sgd.kind, train::OptimizerKind::sgd);
  EXPECT_EQ(sgd.momentum, 0.9);
  EXPECT_TRUE(sgd.nesterov);
  EXPECT_EQ(sgd.weight_decay, 0.1);
  EXPECT_EQ(train::optimizer_states(sgd), (std::vector<StateSpec>{{.name = "momentum_buffer"}}));
  EXPECT_TRUE(train::optimizer_states(of({"--optim", "sgd"})).empty());
  EXPECT_EQ(of({"--momentum", "0.9", "--nesterov"}).kind, train::OptimizerKind::adamw);  // with a note
  EXPECT_THAT(refused([&] { (void)of({"--optim", "sgd", "--nesterov"}); }), HasSubstr("--momentum is 0"));
}

TEST(Setup, SystemMessagesAreUtf8) {
  const test::TempDir folder;
  EXPECT_EQ(system_text(options_of({"--system", folder.file("good", "caf\u00e9\n")})), "caf\u00e9");
  test::expect_error(ExitCode::data, "not UTF-8", [&] {
    (void)system_text(options_of({"--system", folder.file("latin", "caf\xe9")}));
  });
}

TEST(Setup, BatchEquation) {
  const Options bad = options_of(
      {"--global_batch_size", "96", "--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "5"});
  const std::string line = refused([&] { (void)batch_of(bad, 8); });
  EXPECT_THAT(line, HasSubstr("global_batch_size 96 != micro 4 x accumulation 5 x ranks 8 = 160"));
  EXPECT_THAT(line, HasSubstr("gradient_accumulation_steps=3"));
  EXPECT_THAT(line, HasSubstr("--global_batch_size: command line"));
  EXPECT_EQ(batch_of(options_of({"--global_batch_size", "10", "--per_device_train_batch_size", "2"}), 2).accumulation,
            3);
}

TEST(Setup, OneRankOnAGpuReducesAfterTheLastMicroBatch) {
  const Device gpu{Device::Kind::cuda, 0};
  const auto decided = [](Options options, int world, Device device) {
    decide_reduction(options, world, device);
    return options.text("reduce_gradients") + options.value("reduce_gradients").decided;
  };
  EXPECT_EQ(decided(options_of({}), 1, gpu), "lastone rank on a GPU");
  EXPECT_EQ(decided(options_of({}), 2, gpu), "each");
  EXPECT_EQ(decided(options_of({}), 1, host_device), "each");
  EXPECT_EQ(decided(options_of({"--reduce_gradients", "each"}), 1, gpu), "each");
  EXPECT_EQ(decided(options_of({"--reproducible"}), 1, gpu), "each");
  EXPECT_EQ(decided(options_of({"--bf16", "--reduce_dtype", "bf16"}), 1, gpu), "each");
  EXPECT_EQ(decided(options_of({"--offload_optimizer", "cpu"}), 1, gpu), "each");
  const plan::BatchPlan batch{.global_batch = 4, .micro_batch = 2, .data_ranks = 1, .accumulation = 2};
  EXPECT_EQ(reduction_text(batch, "why"), " | gradients are reduced after the last micro-batch: why");
  EXPECT_EQ(reduction_text(batch, ""), "");
}

TEST(Setup, StrategiesAndPolicies) {
  EXPECT_EQ(strategy_of(options_of({"--zero_stage", "3"}), 4, 4).mesh, Mesh(1, 4));
  EXPECT_EQ(strategy_of(options_of({"--zero_stage", "0"}), 4, 4).mesh, Mesh(4, 1));
  EXPECT_EQ(strategy_of(options_of({"--sharding_strategy", "HYBRID_SHARD", "--shard_group_size", "2"}), 4, 4).mesh,
            Mesh(2, 2));
  EXPECT_EQ(strategy_of(options_of({"--sharding_strategy", "HYBRID_SHARD"}), 8, 4).mesh, Mesh(2, 4));
  const shard::ShardPolicy policy =
      strategy_of(options_of({"--forward_prefetch", "3", "--reduce_gradients", "last", "--gradient_checkpointing",
                              "full", "--no-reshard_after_forward"}),
                  2, 2)
          .policy;
  EXPECT_EQ(policy.forward_prefetch, 3);
  EXPECT_EQ(policy.reduce, shard::Reduce::last);
  EXPECT_EQ(policy.recompute, shard::Recompute::full);
  EXPECT_FALSE(policy.reshard_after_forward);
}

TEST(Setup, RanksThatShareRows) {
  const Options options =
      options_of({"--sequence_parallel_size", "2", "--global_batch_size", "16", "--per_device_train_batch_size", "2"});
  EXPECT_EQ(options.integer("context_parallel_size"), 2);
  EXPECT_EQ(strategy_of(options, 8, 8).mesh, Mesh({{Axis::replicate, 1}, {Axis::shard, 4}, {Axis::context, 2}}));
  const plan::BatchPlan batch = batch_of(options, 8);
  EXPECT_EQ(batch.data_ranks, 4);
  EXPECT_EQ(batch.accumulation, 2);
  EXPECT_THAT(refused([] {
                (void)batch_of(options_of({"--context_parallel_size", "2", "--global_batch_size", "10",
                                           "--gradient_accumulation_steps", "6"}),
                               2);
              }),
              HasSubstr("on 1 groups of ranks that have the same rows. Set gradient_accumulation_steps=5"));
  EXPECT_THAT(refused([] {
                (void)strategy_of(options_of({"--context_parallel_size", "3"}), 4, 4);
              }),
              HasSubstr("3 ranks that share rows do not divide"));
  EXPECT_THAT(refused([] {
                check_options(options_of({"--context_parallel_size", "2", "--sample_prompt", "A"}));
              }),
              HasSubstr("generate nothing"));
}

TEST(Setup, RanksThatShareMatrices) {
  const Options options =
      options_of({"--tensor_parallel_size", "4", "--global_batch_size", "16", "--per_device_train_batch_size", "2"});
  EXPECT_EQ(strategy_of(options, 8, 8).mesh, Mesh({{Axis::replicate, 1}, {Axis::shard, 2}, {Axis::tensor, 4}}));
  const plan::BatchPlan batch = batch_of(options, 8);
  EXPECT_EQ(batch.data_ranks, 2);
  EXPECT_EQ(batch.accumulation, 4);
  EXPECT_THAT(refused([] {
                (void)strategy_of(options_of({"--tensor_parallel_size", "3"}), 4, 4);
              }),
              HasSubstr("3 ranks that share matrices do not divide the run of 4 ranks"));
  EXPECT_THAT(
      refused([] {
        (void)strategy_of(options_of({"--sharding_strategy", "HYBRID_SHARD", "--shard_group_size", "2",
                                      "--context_parallel_size", "2", "--tensor_parallel_size", "2"}),
                          8, 8);
      }),
      HasSubstr("2 ranks that share rows times 2 ranks that share matrices do not divide a shard group of 2 ranks"));
  EXPECT_EQ(strategy_of(options_of({"--tensor_parallel_size", "2", "--context_parallel_size", "4"}), 8, 8).mesh,
            Mesh({{Axis::replicate, 1}, {Axis::shard, 1}, {Axis::context, 4}, {Axis::tensor, 2}}));
}

TEST(Setup, Refusals) {
  EXPECT_THAT(refused([] { (void)strategy_of(options_of({"--shard_group_size", "3"}), 4, 4); }), HasSubstr("3"));
  EXPECT_THAT(refused([] {
                (void)strategy_of(options_of({"--shard_group_size", "8"}), 4, 4);
              }),
              HasSubstr("larger than the run of 4"));
  EXPECT_THAT(refused([] {
                (void)strategy_of(options_of({"--shard_group_size", "2", "--zero_stage", "0"}), 4, 4);
              }),
              HasSubstr("shards nothing"));
  EXPECT_THAT(refused([] { (void)strategy_of(options_of({"--reproducible"}), 3, 3); }), HasSubstr("power of two"));
  EXPECT_THAT(refused([] {
                check_options(options_of({"--reproducible", "--reduce_gradients", "last"}));
              }),
              HasSubstr("reduce_gradients"));
  EXPECT_THAT(refused([] {
                check_options(options_of({"--gemm_choice", "measured", "--reproducible"}));
              }),
              HasSubstr("timing chooses"));
  EXPECT_THAT(refused([] { check_options(options_of({"--attention", "cudnn"})); }), HasSubstr("bf16 or fp16"));
  check_options(options_of({"--attention", "cudnn", "--bf16", "--packing"}));
  EXPECT_THAT(refused([] {
                check_options(options_of({"--group_by_length", "--packing"}));
              }),
              HasSubstr("nothing to group"));
  EXPECT_THAT(refused([] {
                check_options(options_of({"--group_by_length", "--dataset_shuffle", "false"}));
              }),
              HasSubstr("keeps the order of the files"));
  for (const char* word : {"cudnn", "measured"})
    EXPECT_THAT(refused([&] {
                  choose_attention(options_of({"--attention", word, "--bf16"}), host_device);
                }),
                HasSubstr("on the CPU"));
  const auto planned = [](std::vector<std::string> words, Device device) {
    choose_attention(options_of(std::move(words)), device);
    const bool library = kernels::device_attention() == kernels::DeviceAttention::cudnn;
    kernels::set_device_attention(kernels::DeviceAttention::own);
    return library;
  };
  const Device gpu{Device::Kind::cuda, 0};
  EXPECT_TRUE(planned({"--bf16"}, gpu));
  EXPECT_FALSE(planned({"--bf16"}, host_device));
  for (const char* word : {"--packing", "--padding_free"}) EXPECT_TRUE(planned({"--bf16", word}, gpu)) << word;
  for (const char* word : {"--reproducible", "--attention=own", "--bf16=false"})
    EXPECT_FALSE(planned({"--bf16", word}, gpu)) << word;
  EXPECT_THAT(refused([] {
                check_options(options_of({"--attention", "measured", "--reproducible"}));
              }),
              HasSubstr("timing chooses"));
  EXPECT_THAT(refused([] {
                check_options(options_of({"--gemm_choice_file", "x"}));
              }),
              HasSubstr("is for --gemm_choice measured"));
  EXPECT_THAT(refused([] { check_options(options_of({"--eval_strategy", "epoch"})); }), HasSubstr("validation data"));
  EXPECT_THAT(refused([] { check_options(options_of({"--baseline", "bigram"})); }), HasSubstr("validation data"));
  EXPECT_THAT(refused([] {
                check_options(options_of({"--val_dataset", "x", "--split_dataset_ratio", "0.1"}));
              }),
              HasSubstr("Keep one"));
  EXPECT_THAT(refused([] {
                check_options(options_of({"--reproducible", "--reduce_gradients", "last", "--eval_strategy", "epoch"}));
              }),
              testing::AllOf(HasSubstr("reduce_gradients"), HasSubstr("validation data")));
  const models::Model model = models::make(model_preset_config("small"), "small");
  EXPECT_THAT(refused([&] { (void)sequence_length(options_of({"--max_length", "4000"}), model); }), HasSubstr("1024"));
  EXPECT_EQ(sequence_length(options_of({}), model), 1024);
}

TEST(Setup, OptionsOfTheCommandLineWithoutAnEffectAreRefused) {
  const auto check = [](const std::vector<std::string>& arguments) { check_options(options_of(arguments)); };
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--nvme_path", "x"},
                                                    {"--nvme_path", "x", "--offload_optimizer", "cpu"},
                                                    {"--compress_axes", "all"},
                                                    {"--error_feedback", "false"},
                                                    {"--error_feedback", "true", "--gather_dtype", "int8"}})
    EXPECT_THAT(refused([&] { check(arguments); }), HasSubstr(arguments[0] + " has no effect without")) << arguments[0];
  check({"--nvme_path", "x", "--offload_optimizer", "disk"});
  check({"--nvme_path", "x", "--zero_stage", "3", "--offload_params", "nvme"});
  check({"--compress_axes", "all", "--gather_dtype", "int8_frozen"});
  check({"--compress_axes", "all", "--error_feedback", "false", "--reduce_dtype", "int8"});
  check_options(options_of_yaml("deepspeed_config: {offload_optimizer_device: cpu, offload_optimizer_nvme_path: x}\n"));
}

TEST(Setup, TheChosenTiersAreARow) {
  const auto rows = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--zero_stage", "3", "--max_length", "16", "--global_batch_size", "2"});
    const Options options = options_of(std::move(arguments));
    const models::Model model = make_training_model(options, model_preset_config("small"), "small", DType::f32);
    return tier_rows(plan::make_plan(run_spec(options, model, 2, Topology{.ranks_per_node = 2})), shard::Reduce::each);
  };
  for (const TierRow& row : rows({})) EXPECT_EQ(row.chosen, row.name == std::string("resident")) << row.name;
  const std::vector<TierRow> both =
      rows({"--offload_params", "cpu", "--offload_optimizer", "disk", "--nvme_path", "scratch"});
  for (const TierRow& row : both) EXPECT_EQ(row.chosen, &row == &both.back()) << row.name;
  EXPECT_EQ(both.back().name, std::string("as chosen"));
  EXPECT_EQ(both.back().options, "--offload_params cpu --offload_optimizer disk");
  EXPECT_GT(both.back().disk, 0U);
  for (const TierRow& row : rows({"--offload_activations", "true"}))
    EXPECT_EQ(row.chosen, row.name == std::string("activations on the CPU")) << row.name;
  EXPECT_EQ(rows({"--offload_activations", "true", "--offload_params", "cpu"}).back().options,
            "--offload_params cpu --offload_optimizer cpu --offload_activations true");
}

/// Nodes of as many ranks as have parts of a matrix: nothing of a layer is gathered, and gradients are all-reduced.
TEST(Setup, PlansShardGroupsOfRanksThatShareMatrices) {
  const Options options =
      options_of({"--sharding_strategy", "HYBRID_SHARD", "--max_length", "16", "--tensor_parallel_size", "2"});
  const models::Model model = make_training_model(options, model_preset_config("small"), "small", DType::f32);
  const plan::RunPlan plan = plan::make_plan(run_spec(options, model, 8, Topology{.ranks_per_node = 2}));
  EXPECT_EQ(plan.spec.strategy.mesh, Mesh({{Axis::replicate, 4}, {Axis::shard, 1}, {Axis::tensor, 2}}));
  EXPECT_GT(plan.costs.replicate_axis.across_nodes, 0U);
  EXPECT_EQ(plan.costs.shard_axis.across_nodes, 0U);
}

TEST(Setup, PlansCompareAxes) {
  const Options options = options_of({"--zero_stage", "3", "--max_length", "64", "--global_batch_size", "8",
                                      "--per_device_train_batch_size", "2", "--tensor_parallel_size", "2"});
  ModelConfig config;
  config.text = model_preset_config("small");
  config.path = "small";
  const models::Model model = make_training_model(options, config.text, config.path, DType::f32);
  const plan::RunSpec spec = run_spec(options, model, 8, Topology{.ranks_per_node = 4});
  const plan::RunPlan chosen = plan::make_plan(spec);
  const std::vector<AxesRow> rows = axes_rows({options, config, spec}, chosen);
  const auto row = [&](int context, int tensor) {
    const auto found =
        std::ranges::find_if(rows, [&](const AxesRow& of) { return of.context == context && of.tensor == tensor; });
    return found == rows.end() ? AxesRow{.refused = "no row"} : *found;
  };
  for (const AxesRow& of : rows) EXPECT_EQ(of.chosen, of.context == 1 && of.tensor == 2);
  EXPECT_EQ(row(1, 2).costs.total, chosen.costs.total);
  EXPECT_THAT(row(1, 4).refused, HasSubstr("4 cannot divide 6 attention heads"));
  EXPECT_EQ(row(1, 8).refused, "no row");  // more than a node's ranks
  // A rank of 8 has a row; of groups of two each has a half of two; with 6 heads a context of 4 gathers.
  for (const auto& [context, tensor] : {std::pair{1, 1}, {2, 1}, {4, 1}, {1, 2}}) {
    const AxesRow of = row(context, tensor);
    EXPECT_EQ(of.refused, "") << context << " x " << tensor;
    const double twice = tensor > 1 ? chosen.costs.recompute_flops_per_step : 0;  // the head's logits
    EXPECT_NEAR(of.flops, (chosen.costs.flops_per_step + twice) / 8, 1.0);
    EXPECT_EQ(of.costs.exchange.collectives > 0, context * tensor > 1);
  }
  EXPECT_EQ(axes_json(rows).size(), rows.size());
}

TEST(Setup, BuiltInShapesHaveTheirSizes) {
  const std::map<std::string, std::int64_t> sizes = {{"gpt2", 124'439'808},
                                                     {"gpt2-medium", 354'823'168},
                                                     {"gpt2-large", 774'030'080},
                                                     {"gpt2-xl", 1'557'611'200},
                                                     {"small", 11'139'072},
                                                     {"llama-3.2-1b", 1'235'814'400},
                                                     {"llama-3.2-3b", 3'212'749'824},
                                                     {"llama-3.1-8b", 8'030'261'248},
                                                     {"llama-3.1-70b", 70'553'706'496},
                                                     {"llama-3.1-405b", 405'853'388'800},
                                                     {"qwen2.5-0.5b", 494'032'768},
                                                     {"qwen2.5-1.5b", 1'543'714'304},
                                                     {"qwen2.5-3b", 3'085'938'688},
                                                     {"qwen2.5-7b", 7'615'616'512},
                                                     {"qwen2.5-14b", 14'770'033'664},
                                                     {"qwen2.5-32b", 32'763'876'352},
                                                     {"qwen2.5-72b", 72'706'203'648},
                                                     {"qwen3-0.6b", 596'049'920},
                                                     {"qwen3-1.7b", 1'720'574'976},
                                                     {"qwen3-4b", 4'022'468'096},
                                                     {"qwen3-8b", 8'190'735'360},
                                                     {"qwen3-14b", 14'768'307'200},
                                                     {"qwen3-32b", 32'762'123'264},
                                                     {"qwen3-30b-a3b", 30'532'122'624},
                                                     {"mixtral-8x7b", 46'702'792'704},
                                                     {"gemma2-2b", 2'614'341'888},
                                                     {"gemma2-9b", 9'241'705'984},
                                                     {"gemma3-270m", 268'098'176},
                                                     {"gemma3-1b", 999'885'952},
                                                     {"gpt-oss-20b", 20'914'757'184},
                                                     {"gpt-oss-120b", 116'829'156'672},
                                                     {"llama-4-scout", 107'769'861'120},
                                                     {"llama-4-maverick", 400'711'848'960}};
  for (const auto& [word, size] : sizes)
    EXPECT_EQ(models::make(model_preset_config(word), word).num_params(), size) << word;
  EXPECT_EQ(std::count(model_preset_names, model_preset_names + std::strlen(model_preset_names), '|') + 1,
            static_cast<std::ptrdiff_t>(sizes.size()));
  EXPECT_EQ(models::make(model_preset_config("small"), "small").vocab, 256);
}

}  // namespace
}  // namespace tessera::jobs
