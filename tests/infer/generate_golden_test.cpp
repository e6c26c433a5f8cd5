// SPDX-License-Identifier: Apache-2.0
// Greedy tokens equal those of transformers' generate, on every golden model, at 1, 2 and 3 ranks; with repetition
// penalty and stop tokens.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "io/file/text_file.hpp"
#include "kernels/threads.hpp"
#include "runtime/infer/inference.hpp"
#include "tests/models/golden_folders.hpp"

namespace tessera::test {
namespace {

std::string directory_of(const std::string& name) { return std::string(TESSERA_GOLDEN) + "/" + name; }

infer::GenerateRequest request_of(const nlohmann::json& golden) {
  infer::GenerateRequest request;
  request.prompts = golden["prompts"].get<std::vector<infer::TokenIds>>();
  request.max_new_tokens = golden["max_new_tokens"];
  request.stop = golden["stop"].get<infer::TokenIds>();
  request.sampling.repetition_penalty = golden["repetition_penalty"];
  return request;
}

/// Completions of the model in `directory`, in micro-batches of two, on ranks as threads.
std::vector<infer::Completion> generate(const models::Model& model, const std::string& directory,
                                        const infer::GenerateRequest& request, int ranks) {
  kernels::set_threads(1);
  std::vector<infer::Completion> made;
  run_local(
      ranks,
      [&](World& world) {
        const infer::GenerationShape shape = infer::generation_shape(request, 2);
        infer::InferenceOptions options;
        options.run.purpose = plan::Purpose::generate;
        options.run.model = &model;
        options.run.strategy = shard::make_strategy("3", ranks, 0, ranks);
        options.run.batch = {.global_batch = 2 * ranks, .micro_batch = 2, .data_ranks = ranks, .accumulation = 1};
        options.run.tokens = shape.tokens;
        options.run.cache_tokens = shape.cache_tokens;
        infer::Inference inference(world, options);
        io::read_model(world, directory, model.params, inference.plan().layout, inference.shards(),
                       [&](const std::string& name) { return models::tensor_use(model, name); });
        inference.parameters_loaded();
        const auto report = inference.generate(request);
        if (world.rank() == 0) made = report.completions;
      },
      /*copies=*/ranks == 3);
  return made;
}

class GenerateGolden : public testing::TestWithParam<std::string> {};

TEST_P(GenerateGolden, GreedyTokensAreThoseOfTransformers) {
  const std::string directory = directory_of(GetParam());
  const models::Model model = models::make(io::read_text(directory + "/config.json"), directory);
  const auto golden = nlohmann::json::parse(io::read_text(directory + "/generate.json"));
  ASSERT_EQ(golden["cases"].size(), 3U);
  int stopped = 0;
  for (const auto& one : golden["cases"]) {
    const infer::GenerateRequest request = request_of(one);
    EXPECT_GE(one["margin"], 1e-3);  // large enough that the order of sums does not matter
    for (const int ranks : {1, 2, 3}) {
      const auto made = generate(model, directory, request, ranks);
      ASSERT_EQ(made.size(), request.prompts.size());
      for (std::size_t p = 0; p < made.size(); ++p) {
        EXPECT_EQ(made[p].ids, one["outputs"][p].get<infer::TokenIds>())
            << "prompt " << p << " on " << ranks << " ranks";
        stopped += made[p].stopped ? 1 : 0;
      }
    }
  }
  EXPECT_GT(stopped, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, GenerateGolden, testing::ValuesIn(golden_folders(TESSERA_GOLDEN, "generate.json")),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace tessera::test
