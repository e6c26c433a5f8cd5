// SPDX-License-Identifier: Apache-2.0
// Assigns tensors to files, and makes headers and index.

#include "io/model/model_files.hpp"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace tessera::io {

namespace {

/// The file of each tensor.
std::vector<int> assign_files(const std::vector<SafetensorsTensor>& tensors, std::uint64_t most) {
  std::vector<int> files;
  int file = 0;
  std::uint64_t filled = 0;
  for (const auto& tensor : tensors) {
    const std::uint64_t bytes = tensor.bytes();
    if (filled > 0 && (bytes > most || filled > most - bytes)) {
      ++file;
      filled = 0;
    }
    filled += bytes;
    files.push_back(file);
  }
  return files;
}

std::string name_of_file(int file, int count) {
  return count == 1 ? model_file_name : strfmt("model-%05d-of-%05d.safetensors", file + 1, count);
}

std::string index_text(const std::vector<SafetensorsTensor>& tensors, const std::vector<int>& files,
                       const std::vector<PlannedFile>& planned) {
  std::uint64_t total = 0;
  nlohmann::json map = nlohmann::json::object();  // sorted by name, as the official writer's
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    total += tensors[i].bytes();
    map[tensors[i].name] = planned[static_cast<std::size_t>(files[i])].name;
  }
  nlohmann::ordered_json json;
  json["metadata"]["total_size"] = total;
  json["weight_map"] = map;
  return json.dump(2) + "\n";
}

/// Refuses a name twice in different files; plan_safetensors refuses it in one file.
void check_names(const std::vector<SafetensorsTensor>& tensors) {
  std::set<std::string> names;
  for (const auto& tensor : tensors)
    if (!names.insert(tensor.name).second)
      throw Error(ExitCode::data, "cannot write tensor " + quote_name(tensor.name) + ": the name is taken");
}

/// transformers' name of a type.
const char* torch_name(DType dtype) {
  switch (dtype) {
    case DType::f32: return "float32";
    case DType::f64: return "float64";
    case DType::bf16: return "bfloat16";
    case DType::f16: return "float16";
    default: break;
  }
  TESSERA_ASSERT(false, "weights of %s", name_of(dtype));
  return "";
}

}  // namespace

std::string config_for_dtype(const std::string& config, DType dtype) {
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(config, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw Error(ExitCode::data, "the model's config.json is not a JSON object");
  bool changed = false;
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (!json.contains(key) || json[key] == torch_name(dtype)) continue;
    json[key] = torch_name(dtype);
    changed = true;
  }
  return changed ? json.dump(2) + "\n" : config;
}

namespace {

void locate(const std::vector<SafetensorsTensor>& tensors, const std::vector<int>& file_of, ModelFiles& files) {
  std::map<std::string, std::uint64_t> begin;
  for (const auto& file : files.files)
    for (const auto& entry : file.plan.entries) begin.emplace(entry.name, entry.begin);
  for (std::size_t i = 0; i < tensors.size(); ++i) files.locations.push_back({file_of[i], begin.at(tensors[i].name)});
}

}  // namespace

ModelFiles plan_model_file(const std::vector<SafetensorsTensor>& tensors, const std::string& name,
                           std::map<std::string, std::string> metadata) {
  metadata["format"] = "pt";
  ModelFiles result;
  result.files.push_back({name, plan_safetensors(tensors, metadata)});
  locate(tensors, std::vector<int>(tensors.size(), 0), result);
  return result;
}

ModelFiles plan_model_files(const std::vector<SafetensorsTensor>& tensors, std::uint64_t max_shard_bytes,
                            std::map<std::string, std::string> metadata) {
  metadata.emplace("format", "pt");
  check_names(tensors);
  const std::vector<int> file_of = assign_files(tensors, max_shard_bytes);
  const int count = file_of.empty() ? 1 : file_of.back() + 1;
  ModelFiles result;
  for (int file = 0; file < count; ++file) {
    std::vector<SafetensorsTensor> own;
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (file_of[i] == file) own.push_back(tensors[i]);
    result.files.push_back({name_of_file(file, count), plan_safetensors(own, metadata)});
  }
  if (count > 1) result.index = index_text(tensors, file_of, result.files);
  locate(tensors, file_of, result);
  return result;
}

}  // namespace tessera::io
