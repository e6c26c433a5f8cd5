// SPDX-License-Identifier: Apache-2.0
// Which files of a model directory are neither weights nor records of a training run.
#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "io/file/file.hpp"
#include "io/file/text_file.hpp"
#include "io/model/auxiliary_files.hpp"
#include "io/model/model_files.hpp"
#include "io/model/safetensors_index.hpp"
#include "runtime/base/log.hpp"

namespace tessera::io {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t most_in_memory = 1u << 20;  // larger files are copied from disk to disk
constexpr int deepest_directory = 16;
constexpr std::size_t max_listed_files = 10;

template <std::size_t n>
bool is_one_of(std::string_view name, const std::array<std::string_view, n>& names) {
  return std::ranges::find(names, name) != names.end();
}

/// Weights, or the state of an optimizer, a schedule or a random number generator.
bool holds_tensors(const std::string& name) {
  static constexpr std::array<std::string_view, 21> types = {
      ".safetensors", ".pt",     ".pth",    ".ckpt",    ".h5",     ".hdf5",   ".msgpack",
      ".gguf",        ".ggml",   ".onnx",   ".ot",      ".tflite", ".nemo",   ".pkl",
      ".onnx_data",   ".pickle", ".distcp", ".mlmodel", ".engine", ".mindir", ".llamafile"};
  static constexpr std::array<std::string_view, 9> bin_names = {"pytorch_model", "adapter_model", "training_args",
                                                                "optimizer",     "scheduler",     "model",
                                                                "consolidated",  "openvino",      "diffusion_pytorch"};
  if (is_one_of(fs::path(name).extension().string(), types)) return true;
  if (name.ends_with(".bin"))
    return std::ranges::any_of(bin_names, [&](std::string_view start) { return name.starts_with(start); });
  return name.ends_with(".index.json");  // of the shards of one of these
}

/// What a run of this program writes beside its model, where the directory has its STATUS.
bool is_run_record(const std::string& name) {
  static constexpr std::array<std::string_view, 9> names = {
      "STATUS", "logging.jsonl", "run.json", "args.json", "report.html", "runs", "trace", "model.tmp", "model.new"};
  return is_one_of(name, names);
}

class Collector {
 public:
  explicit Collector(const std::string& directory)
      : directory_(directory), of_a_run_(exists(directory + "/STATUS") && exists(directory + "/logging.jsonl")) {}

  /// `inside`: "" or "figures/".
  void add(const std::string& inside, int depth) {
    std::vector<fs::directory_entry> entries;
    std::error_code failed;
    for (fs::directory_iterator entry(directory_ + "/" + inside, failed), end; !failed && entry != end;
         entry.increment(failed))
      entries.push_back(*entry);
    if (failed) throw system_error("read", directory_ + "/" + inside, failed.value());
    std::ranges::sort(entries);
    for (const fs::directory_entry& entry : entries) add(inside, entry, depth);
  }
  ModelAuxiliaryFiles take() { return std::move(found_); }

 private:
  void add(const std::string& inside, const fs::directory_entry& entry, int depth) {
    const std::string name = entry.path().filename().string(), path = inside + name;
    std::error_code failed;
    if (name.starts_with('.') || path == "config.json") return;
    const bool directory = entry.is_directory(failed), link = entry.is_symlink(failed);
    const bool state =
        directory && inside.empty() && (name.starts_with("checkpoint-") || name.starts_with("global_step"));
    if (of_a_run_ && inside.empty() && (state || is_run_record(name))) return;
    if (directory && !link && !state && depth < deepest_directory) return add(path + "/", depth + 1);
    if (directory || !entry.is_regular_file(failed) || holds_tensors(name)) {
      found_.left_out.push_back(path);
      return;
    }
    const std::string source = directory_ + "/" + path;
    if (entry.file_size(failed) > most_in_memory) found_.files.push_back({path, {}, source});
    else found_.files.push_back({path, read_text(source)});
  }

  const std::string& directory_;
  bool of_a_run_;
  ModelAuxiliaryFiles found_;
};

/// The files that open_safetensors_model reads, and their index.
std::vector<std::string> weight_files(const std::string& directory) {
  if (exists(directory + "/" + model_file_name)) return {model_file_name};
  if (!exists(directory + "/" + index_file_name)) return {};
  const std::string path = directory + "/" + index_file_name;
  std::vector<std::string> names =
      shards_of(parse_safetensors_index(read_text(path, max_index_bytes), path), directory);
  names.push_back(index_file_name);
  return names;
}

}  // namespace

ModelAuxiliaryFiles read_model_auxiliary_files(const std::string& directory) {
  Collector collector(directory);
  const std::string config = read_text(directory + "/config.json");
  collector.add("", 0);
  ModelAuxiliaryFiles found = collector.take();
  found.files.insert(found.files.begin(), {"config.json", config});
  const std::vector<std::string> weights = weight_files(directory);
  std::erase_if(found.left_out,
                [&](const std::string& name) { return std::ranges::find(weights, name) != weights.end(); });
  return found;
}

std::vector<AuxiliaryFile> all_auxiliary_files(const std::string& directory) {
  ModelAuxiliaryFiles found = read_model_auxiliary_files(directory);
  std::string list;
  for (std::size_t i = 0; i < std::min(found.left_out.size(), max_listed_files); ++i)
    list += (i > 0 ? ", " : "") + found.left_out[i];
  if (found.left_out.size() > max_listed_files)
    list += strfmt(" and %zu more", found.left_out.size() - max_listed_files);
  if (!list.empty())
    log::warn(
        90, directory + ": not copied, because they are other weights, the state of a training, or no files: " + list);
  return std::move(found.files);
}

void write_auxiliary_file(const std::string& directory, const AuxiliaryFile& file) {
  const std::string path = directory + "/" + file.name;
  if (file.name.find('/') != std::string::npos) make_directories(directory_of(path));
  if (file.source.empty()) {
    write_text(path, file.text);
  } else {
    std::error_code failed;
    fs::copy_file(file.source, path, fs::copy_options::overwrite_existing, failed);
    if (failed) throw system_error("copy " + file.source + " to", path, failed.value());
    File::open_to_write(path).sync();
  }
  if (file.name.find('/') != std::string::npos) sync_directory(directory_of(path));
}

}  // namespace tessera::io
