// SPDX-License-Identifier: Apache-2.0
// A model through the memory of all ranks: weights in codes of 4 or 8 bits become floats as they are read.
#include "jobs/cli/commands/whole_model.hpp"

#include <chrono>

#include "io/model/model_io.hpp"
#include "io/model/model_part.hpp"
#include "io/model/safetensors_index.hpp"
#include "jobs/cli/session/model_tensors.hpp"
#include "jobs/cli/session/weights.hpp"
#include "models/quantize.hpp"
#include "models/wrappers.hpp"
#include "runtime/infer/inference.hpp"

namespace tessera::jobs {

plan::RunSpec whole_model_spec(const models::Model& model, World& world) {
  plan::RunSpec spec;
  spec.purpose = plan::Purpose::evaluate;
  spec.model = &model;
  spec.strategy = shard::make_strategy("3", world.size(), 0, world.size());
  if (model.lora) spec.strategy = shard::make_strategy("3", world.size(), 0, world.size(), {{"*.lora", "NO_SHARD"}});
  spec.topology = world.topology();
  spec.batch = {.global_batch = world.size(), .micro_batch = 1, .data_ranks = world.size(), .accumulation = 1};
  spec.tokens = 1;
  return spec;
}

namespace {

/// Of a written model: its files and what is in them.
io::ConvertReport report_of(const std::string& directory) {
  io::ConvertReport report;
  for (const io::SafetensorsFile& file : io::open_safetensors_model(directory)) {
    ++report.files;
    for (const io::SafetensorsEntry& entry : file.entries()) {
      ++report.tensors;
      report.bytes += entry.end - entry.begin;
    }
  }
  return report;
}

}  // namespace

io::ConvertReport write_coded_as_floats(World& world, const std::string& directory, const std::string& config,
                                        const io::ConvertTarget& target, DType dtype) {
  const auto start = std::chrono::steady_clock::now();
  const std::string text = models::without_quantization(config);
  const models::Model model = models::make(text, directory + "/config.json");
  const io::PartOf whole{directory, [&](const std::string& name) { return models::tensor_use(model, name); }};
  if (models::is_text_part(model.family)) world.run_and_agree([&] { io::check_copied_tensors(whole); });
  infer::Inference run(world, {.run = whole_model_spec(model, world)});
  const std::vector<io::ShardView> shards = run.shards();
  read_weights(world, directory, {.model = &model, .layout = &run.plan().layout, .shards = shards});
  std::vector<io::AuxiliaryFile> others;
  for (const io::AuxiliaryFile& file : target.auxiliary_files)
    if (file.name != "config.json") others.push_back(file);
  const io::WriteModelOptions how{.max_shard_bytes = target.max_file_bytes,
                                  .dtype = dtype,
                                  .auxiliary_files = std::move(others),
                                  .new_directory = true};
  const std::string made = io::config_for_dtype(text, dtype);
  const shard::ShardLayout& layout = run.plan().layout;
  if (models::is_text_part(model.family))
    io::write_model_part(world, target.directory, made, model.params, layout, shards, how, whole);
  else io::write_model(world, target.directory, made, model.params, layout, shards, how);
  io::ConvertReport report = report_of(target.directory);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace tessera::jobs
