// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/options/model_cache.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "io/data/data_files.hpp"

namespace tessera::jobs {

namespace {

namespace fs = std::filesystem;

std::string environment_value(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// "~" at the beginning is the home directory, as in Python's expanduser.
fs::path expanded(const std::string& path) {
  return path.starts_with("~/") || path == "~" ? fs::path(environment_value("HOME") + path.substr(1)) : fs::path(path);
}

fs::path hub_cache() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const std::string value = environment_value(name); !value.empty()) return expanded(value);
  const std::string home = environment_value("HF_HOME");
  return (home.empty() ? fs::path(user_cache_directory()) / "huggingface" : expanded(home)) / "hub";
}

/// KIND--ORG--NAME
std::string folder_of(const char* kind, const std::string& name) {
  std::string folder = std::string(kind) + "--" + name;
  if (const std::size_t slash = folder.find('/'); slash != std::string::npos) folder.replace(slash, 1, "--");
  return folder;
}

bool is_model(const fs::path& directory) {
  std::error_code ignored;
  return fs::exists(directory / "config.json", ignored);
}

std::string first_line(const fs::path& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0) line.pop_back();
  return line;
}

/// models--ORG--NAME/snapshots/COMMIT; refs/REVISION has the commit of a branch or tag.
std::string in_hub_cache(const std::string& name, const std::string& revision) {
  const fs::path model = hub_cache() / folder_of("models", name);
  const std::string commit = first_line(model / "refs" / revision);
  if (!commit.empty()) return is_model(model / "snapshots" / commit) ? (model / "snapshots" / commit).string() : "";
  std::error_code ignored;
  if (revision.size() < 7) return "";
  for (const fs::directory_entry& snapshot : fs::directory_iterator(model / "snapshots", ignored))
    if (snapshot.path().filename().string().starts_with(revision) && is_model(snapshot.path()))
      return snapshot.path().string();
  return "";
}

/// [hub/][models/]ORG/NAME, by version of ModelScope; dots of the name may be "___".
std::string in_modelscope_cache(const std::string& name) {
  const std::string given = environment_value("MODELSCOPE_CACHE");
  const fs::path cache = given.empty() ? fs::path(user_cache_directory()) / "modelscope" : expanded(given);
  std::string spelled = name;
  for (std::size_t at = 0; (at = spelled.find('.', at)) != std::string::npos; at += 3) spelled.replace(at, 1, "___");
  for (const char* folder : {"hub/models", "models", "hub", ""})
    for (const std::string& model : {name, spelled})
      if (is_model(cache / folder / model)) return (cache / folder / model).string();
  return "";
}

}  // namespace

std::string user_cache_directory() {
  const std::string xdg = environment_value("XDG_CACHE_HOME");
  if (!xdg.empty()) return expanded(xdg);
  return environment_value("HOME").empty() ? "" : expanded("~/.cache").string();
}

bool is_hub_name(const std::string& model) {
  const auto allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("._-/").find(c) != std::string_view::npos;
  };
  return !model.empty() && std::isalnum(static_cast<unsigned char>(model.front())) != 0 && !model.ends_with(".json") &&
         !model.ends_with("/") && std::ranges::count(model, '/') <= 1 && std::ranges::all_of(model, allowed);
}

std::string find_cached_model(const std::string& name, const std::string& revision) {
  const bool newest = revision == "main" || revision == "master";
  std::string found = in_hub_cache(name, newest ? "main" : revision);
  return found.empty() && newest ? in_modelscope_cache(name) : found;
}

std::string download_command(const std::string& name, const std::string& revision) {
  return "hf download " + name + (revision == "main" || revision == "master" ? "" : " --revision " + revision);
}

std::pair<std::string, std::string> split_selection(const std::string& name) {
  const std::size_t at = io::is_command(name) ? std::string::npos : name.find_last_of("#:");
  if (at == std::string::npos || at == 0 || at + 1 == name.size()) return {name, ""};
  if (name.find_first_not_of("0123456789.eE+-", at + 1) != std::string::npos) return {name, ""};
  return {name.substr(0, at), name.substr(at)};
}

bool is_hub_dataset(const std::string& name) {
  static constexpr const char* endings[] = {".jsonl", ".json", ".ndjson",  ".txt",   ".csv", ".tsv", ".bin",
                                            ".idx",   ".md",   ".parquet", ".arrow", ".gz",  ".zst", ".bak"};
  if (!is_hub_name(name) || std::ranges::any_of(endings, [&](const char* end) { return name.ends_with(end); }))
    return false;
  const std::size_t slash = name.find('/');
  if (slash == std::string::npos && name.find('.') != std::string::npos) return false;
  std::error_code ignored;
  for (const char* end : {"", ".bin", ".idx"})  // Megatron's PREFIX
    if (fs::exists(name + end, ignored)) return false;
  return slash == std::string::npos || !fs::exists(name.substr(0, slash), ignored);  // no missing file of a directory
}

std::string find_cached_dataset(const std::string& name) {
  const fs::path dataset = hub_cache() / folder_of("datasets", name);
  const std::string commit = first_line(dataset / "refs" / "main");
  std::error_code ignored;
  if (commit.empty() || !fs::is_directory(dataset / "snapshots" / commit, ignored)) return "";
  return (dataset / "snapshots" / commit).string();
}

std::string download_dataset_command(const std::string& name) {
  return "hf download --repo-type dataset " + name + " --local-dir " + name.substr(name.rfind('/') + 1);
}

}  // namespace tessera::jobs
