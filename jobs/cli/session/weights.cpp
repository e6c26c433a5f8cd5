// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/weights.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "io/checkpoint/checkpoint.hpp"
#include "io/file/file.hpp"
#include "io/file/text_file.hpp"
#include "io/model/safetensors_index.hpp"
#include "jobs/cli/session/model_tensors.hpp"
#include "models/score_head.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

/// The model's own parameters; a score that the language model there does not have is marked as one of adapters, which
/// are not looked for.
std::vector<ParamSpec> params_of(World& world, const std::string& directory, const models::Model& model) {
  std::vector<ParamSpec> params(model.own_params().begin(), model.own_params().end());
  if (model.score < 0) return params;
  const std::string found = world.text_of_rank_0([&] {
    const std::string path = directory + "/config.json";
    return std::string(io::exists(path) && models::has_score(io::read_text(path)) ? "yes" : "");
  });
  if (found.empty()) params[static_cast<std::size_t>(model.score)].adapter = true;
  return params;
}

void read_weights_of(World& world, const std::string& directory, const WeightsTarget& target, int depth) {
  const auto is_checkpoint = [&] { return std::string(io::exists(directory + "/" + io::manifest_name) ? "yes" : ""); };
  if (world.text_of_rank_0(is_checkpoint).empty()) {
    const std::vector<ParamSpec> params = params_of(world, directory, *target.model);
    io::read_model(world, directory, params, *target.layout, target.shards,
                   [&](const std::string& name) { return models::tensor_use(*target.model, name); });
    return;
  }
  const io::CheckpointReader reader(world, directory);
  if (reader.manifest().base) {
    if (depth == max_bases)
      throw Error(ExitCode::data, "base models lead from one to the next and do not end", directory);
    const std::string base = world.text_of_rank_0([&] { return base_directory(reader.manifest(), directory); });
    read_weights_of(world, base, target, depth + 1);
  }
  io::TrainingState state;
  for (const io::ShardView& view : target.shards)
    state.shards.push_back({view.unit, view.shard, {view.data}, view.part});
  (void)reader.load(target.model->own_params(), *target.layout, state, target.threads);
}

}  // namespace

void read_weights(World& world, const std::string& directory, const WeightsTarget& target) {
  read_weights_of(world, directory, target, 0);
}

void require_weights(World& world, const std::string& directory) {
  world.run_on_rank_0([&] {
    if (!io::exists(directory + "/" + io::manifest_name)) io::require_model_files(directory);
  });
}

bool holds_weights(const std::string& directory) {
  for (const char* name : {io::model_file_name, io::index_file_name, io::manifest_name})
    if (io::exists(directory + "/" + name)) return true;
  return false;
}

DType stored_dtype(const std::string& directory) {
  std::map<DType, std::int64_t> elements;
  for (const io::SafetensorsFile& file : io::open_safetensors_model(directory))
    for (const io::SafetensorsEntry& entry : file.entries())
      if (entry.known_dtype) elements[entry.dtype] += entry.numel();
  const std::int64_t bf16 = elements[DType::bf16], f16 = elements[DType::f16], f32 = elements[DType::f32];
  return bf16 > std::max(f16, f32) ? DType::bf16 : f16 > f32 ? DType::f16 : DType::f32;
}

DType model_dtype(const std::string& config_json, const std::string& directory) {
  const auto config = nlohmann::json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  for (const char* key : {"dtype", "torch_dtype"})
    if (config.is_object() && config.contains(key) && config.at(key).is_string())
      if (const std::optional<DType> dtype = parse_dtype(config.at(key).get<std::string>())) return *dtype;
  if (!io::exists(directory + "/" + io::model_file_name) && !io::exists(directory + "/" + io::index_file_name))
    return DType::f32;  // a checkpoint
  return stored_dtype(directory);
}

namespace {

/// A text of the run metadata; "": it has none under this key.
std::string recorded(const io::Manifest& manifest, const char* key) {
  const auto json = nlohmann::json::parse(manifest.run_metadata, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains(key) && json.at(key).is_string() ? json.at(key).get<std::string>() : "";
}

}  // namespace

std::string recorded_base(const io::Manifest& manifest) { return recorded(manifest, base_model_key); }

void check_copied_crc(const io::Manifest& manifest, const std::string& checkpoint, const std::string& directory,
                      std::uint32_t crc) {
  const std::string then = recorded(manifest, copied_crc_key), now = strfmt("%08x", crc);
  if (then.empty())
    return log::warn(76, checkpoint +
                             " was written by an older program, which recorded no checksum of the tensors "
                             "beside its text part: whether " +
                             directory + " still has those of its run is not known");
  if (then != now)
    throw Error(ExitCode::data,
                "E145 the tensors beside the text part in " + directory + " are not those that " + checkpoint +
                    " was trained beside: their checksum is " + now + ", not " + then,
                {}, "Put the model that it was trained from there");
}

std::string base_directory(const io::Manifest& manifest, const std::string& checkpoint, const std::string& given) {
  if (!given.empty() && holds_weights(given)) return given;
  std::string directory = recorded_base(manifest);
  if (holds_weights(directory)) return directory;
  throw Error(ExitCode::data,
              checkpoint + " was saved without the frozen parameters, and there is no base model" +
                  (directory.empty() ? directory : " in " + directory),
              {}, "Put the model that it was trained from there, or resume with --model DIR");
}

}  // namespace tessera::jobs
