// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/adapter_config.hpp"

#include <nlohmann/json.hpp>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/directory.hpp"
#include "io/file/file.hpp"
#include "io/file/text_file.hpp"
#include "io/inspect/recognize.hpp"
#include "io/model/foreign_checkpoint.hpp"
#include "io/model/model_files.hpp"
#include "jobs/cli/options/model_cache.hpp"

namespace tessera::jobs {

namespace {

constexpr const char* base_key = "base_model_name_or_path";
constexpr std::uint64_t max_config_bytes = 16U << 20;

bool holds_adapter(const std::string& directory) {
  return io::exists(directory + "/" + io::adapter_config_name) && io::exists(directory + "/" + io::adapter_file_name);
}

/// The directory itself, or the newest of its versions that has an adapter or checkpoints, or the newest adapter of a
/// Trainer.
std::string newest_run(const std::string& path) {
  static constexpr const char* adapter[] = {io::adapter_file_name};
  if (!holds_adapter(path))
    if (std::string trainer = io::newest_trainer_checkpoint(path, adapter); !trainer.empty()) return trainer;
  if (holds_adapter(path) || io::exists(path + "/" + io::manifest_name) || !io::list_checkpoints(path).empty())
    return path;
  for (const auto& [version, directory] : io::list_versions(path))
    if (holds_adapter(directory) || !io::list_checkpoints(directory).empty()) return directory;
  return "";
}

}  // namespace

std::string AdapterConfig::source() const {
  return directory.empty() ? io::adapter_config_name : directory + "/" + io::adapter_config_name;
}

AdapterConfig adapter_of_checkpoint(const std::string& directory) {
  for (const io::AuxiliaryFileRecord& file : io::read_manifest(directory).auxiliary_files)
    if (file.name == io::adapter_config_name) return {io::read_auxiliary_file(directory, file), directory};
  return {};
}

AdapterConfig locate_adapter(const std::string& path) {
  const std::string run = newest_run(path);
  if (holds_adapter(run)) return {io::read_text(run + "/" + io::adapter_config_name, max_config_bytes), run};
  if (!run.empty()) {
    const std::string checkpoint = io::recognize(run, io::Prefer::checkpoint).path;
    if (AdapterConfig config = adapter_of_checkpoint(checkpoint); !config.text.empty()) return config;
    throw Error(ExitCode::data, checkpoint + " is no checkpoint of a LoRA run: it has no " + io::adapter_config_name,
                "--adapters", "Give it with --model or --checkpoint");
  }
  if (const auto foreign = io::find_foreign_checkpoint(path)) throw foreign->error(path);
  const bool config = io::exists(path + "/" + io::adapter_config_name);
  throw Error(ExitCode::data,
              std::string("there is no ") + (config ? io::adapter_file_name : io::adapter_config_name) + " in " + path,
              "--adapters",
              config ? "PEFT writes it with save_pretrained(…, safe_serialization=True)"
                     : "Give the directory of an adapter, as PEFT or a LoRA run writes it, or a checkpoint of a run");
}

std::string base_of_adapter(const AdapterConfig& adapter) {
  const auto json = nlohmann::json::parse(adapter.text, nullptr, /*allow_exceptions=*/false);
  const auto text_of = [&](const char* key) {
    return json.is_object() && json.contains(key) && json.at(key).is_string() ? json.at(key).get<std::string>() : "";
  };
  const std::string base = text_of(base_key), revision = text_of("revision").empty() ? "main" : text_of("revision");
  if (base.empty())
    throw Error(ExitCode::data, adapter.source() + " names no base model (base_model_name_or_path)", "--adapters",
                "Give it with --model");
  if (io::exists(base)) return base;
  const std::string cached = is_hub_name(base) ? find_cached_model(base, revision) : "";
  if (!cached.empty()) return cached;
  throw Error(
      ExitCode::data,
      "the base model of " + adapter.source() + " is " + base + ": no such directory, and it is in no local cache",
      "--adapters",
      "Give it with --model" +
          (is_hub_name(base) ? ". Tessera downloads nothing: " + download_command(base, revision) : std::string()));
}

void refuse_adapter_as_model(const std::string& directory) {
  if (!io::exists(directory + "/" + io::adapter_config_name)) return;
  const auto json = nlohmann::json::parse(io::read_text(directory + "/" + io::adapter_config_name, max_config_bytes),
                                          nullptr, /*allow_exceptions=*/false);
  const bool named = json.is_object() && json.contains(base_key) && json.at(base_key).is_string();
  const std::string base = named ? json.at(base_key).get<std::string>() : "BASE";
  throw Error(ExitCode::data, directory + " holds an adapter and no model", "--model",
              "Use --model " + base + " --adapters " + directory);
}

}  // namespace tessera::jobs
