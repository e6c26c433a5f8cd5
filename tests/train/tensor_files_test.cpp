// SPDX-License-Identifier: Apache-2.0
// Files of runs whose ranks have parts of the same matrices are those of one rank.
#include <filesystem>

#include "io/checkpoint/checkpoint.hpp"
#include "tests/io/files.hpp"
#include "tests/train/experts_configs.hpp"
#include "tests/train/tensor_runs.hpp"

namespace tessera::test {
namespace {

/// A run of some steps, from and to a checkpoint ("": initialized, not saved), and then the model's files.
struct SavedRun {
  std::string from, to, model_to = {};
  int first = 0, steps = 2;
};

std::vector<double> run_and_save(const std::string& config, const Variant& v, const SavedRun& part) {
  const models::Model model = tensor_model(config, v.tensor);
  const RandomTokens tokens(800, 37);
  const io::Sampler sampler(io::count_samples(tokens.size(), v.tokens).samples, true, 11);
  std::vector<double> losses;
  run_local(v.world, [&](World& world) {
    train::Trainer trainer(world, options_of(model, v, 8));
    if (part.from.empty()) trainer.initialize();
    else {
      const io::CheckpointReader reader(world, part.from);
      (void)reader.load(model.params, trainer.plan().layout, trainer.state());
      trainer.parameters_changed();
      trainer.resume_at({part.first, 0});
    }
    for (int s = part.first; s < part.first + part.steps; ++s) {
      const auto report = trainer.step(tokens, sampler, s * v.global_batch, v.global_batch);
      if (world.rank() == 0) losses.push_back(report.loss);
    }
    io::SaveRequest request;
    request.directory = part.to;
    request.step = part.first + part.steps;
    request.params = model.params;
    request.layout = &trainer.plan().layout;
    request.state = trainer.state();
    if (!part.to.empty()) (void)io::CheckpointSave(world, request).commit();
    if (!part.model_to.empty())
      io::write_model(world, part.model_to, config, model.params, trainer.plan().layout, trainer.shards());
  });
  return losses;
}

std::vector<std::string> file_bytes(const std::string& directory) {
  std::vector<std::string> bytes;
  for (const auto& file : io::read_manifest(directory).files) bytes.push_back(bytes_of(directory + "/" + file.name));
  return bytes;
}

TEST(TensorFiles, ACheckpointHasTheBytesOfOneRanksAndAnyMeshContinuesIt) {
  for (const auto& [family, config] : {std::pair{"qwen2", tensor_config("qwen2", 4)},
                                       {"two key and value heads", tensor_config("qwen2", 2)},
                                       {"phi3", tensor_config("phi3", 4, R"(, "pad_token_id": 0)")},
                                       {"tied", tensor_config("qwen3", 4, R"(, "tie_word_embeddings": true)")},
                                       {"experts", experts_like("mixtral")},
                                       {"fused experts and sinks", gpt_oss_config},
                                       {"fused experts beside a shared one", llama4_config},
                                       {"olmo2", tensor_config("olmo2", 4)},
                                       {"gpt2", config_json({.hidden = 24, .heads = 4})}}) {
    const TempDir folder(TempDir::Storage::memory);
    const auto path = [&](const char* name, int step) { return folder / strfmt("%s/checkpoint-%d", name, step); };
    for (const char* name : {"one", "begun", "again", "back"}) std::filesystem::create_directory(folder / name);
    // What initialization gives, and its model files.
    (void)run_and_save(config, tensor_variant(1, 1), {"", path("one", 0), folder / "model-one", 0, 0});
    (void)run_and_save(config, tensor_variant(4, 2), {"", path("begun", 0), folder / "model-split", 0, 0});
    EXPECT_TRUE(file_bytes(path("one", 0)) == file_bytes(path("begun", 0))) << family;
    EXPECT_TRUE(bytes_of(folder / "model-one/model.safetensors") == bytes_of(folder / "model-split/model.safetensors"));
    // One rank's state, read and saved by others.
    (void)run_and_save(config, tensor_variant(1, 1), {path("one", 0), path("one", 2), "", 0, 2});
    for (const auto& [world, ranks, strategy] : {std::tuple{4, 2, "3"}, {4, 4, "0"}, {4, 2, "0"}, {2, 2, "2"}}) {
      (void)run_and_save(config, tensor_variant(world, ranks, strategy), {path("one", 2), path("again", 2), "", 2, 0});
      EXPECT_TRUE(file_bytes(path("again", 2)) == file_bytes(path("one", 2))) << family << " " << world << " " << ranks;
      std::filesystem::remove_all(path("again", 2));
    }
    // And continued, to another mesh and back.
    const auto alone = run_and_save(config, tensor_variant(1, 1), {path("one", 2), "", "", 2, 4});
    const auto split = run_and_save(config, tensor_variant(4, 2), {path("one", 2), path("back", 4), "", 2, 2});
    const auto after = run_and_save(config, tensor_variant(2, 1, "1"), {path("back", 4), "", "", 4, 2});
    for (std::size_t s = 0; s < 4; ++s) EXPECT_NEAR(alone[s], s < 2 ? split[s] : after[s - 2], 1e-5) << s;
  }
}

TEST(TensorFiles, ModelsOfOtherMeshesAreRead) {
  const std::string config = tensor_config("llama", 2);
  const TempDir folder(TempDir::Storage::memory);
  (void)run_and_save(config, tensor_variant(1, 1), {"", "", folder / "model", 0, 1});
  const RandomTokens tokens(800, 37);
  const models::Model alone = tensor_model(config, 1), split = tensor_model(config, 2);
  expect_same_curve(run({&alone, &tokens, 2, folder / "model", false, {}}, tensor_variant(1, 1)),
                    run({&split, &tokens, 2, folder / "model", false, {}}, tensor_variant(4, 2)), "from files");
}

}  // namespace
}  // namespace tessera::test
