// SPDX-License-Identifier: Apache-2.0
// Checks names and the first bytes of files.
#include "io/inspect/recognize.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "io/checkpoint/directory.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/file/file.hpp"
#include "io/model/foreign_checkpoint.hpp"
#include "io/model/model_files.hpp"
#include "runtime/base/log.hpp"

namespace tessera::io {

namespace fs = std::filesystem;

const char* name_of(PathKind kind) {
  static constexpr const char* names[] = {
      "a checkpoint", "a model directory", "an HDF5 file", "a safetensors file", "an index of safetensors files",
      "a token file"};
  return names[static_cast<int>(kind)];
}

namespace {

/// Finds the newest complete checkpoint of a run's directory or of the versions in it.
class NewestCheckpoint {
 public:
  /// The newest complete checkpoint in `directory`, kept in `located`; false if there is none. Warns of each that it
  /// skips. Throws Error (data) for one that cannot be read but may be good: no older one is taken for it.
  bool find(const std::string& directory) {
    for (const FoundCheckpoint& found : list_checkpoints(directory)) {
      if (found.problem.empty()) {
        located.path = found.path;
        return true;
      }
      if (!is_damage(found.problem))
        throw Error(
            ExitCode::data, found.problem, found.path,
            "An older checkpoint is not taken for it: make it readable, update tessera, or name the one to use");
      log::warn(26, found.path + " is incomplete and is skipped: " + found.problem);
      if (!located.skipped.empty()) continue;
      located.skipped = found.path;
      problem = found.problem;
    }
    return false;
  }

  LocatedPath located;
  std::string problem;  // of located.skipped
};

LocatedPath recognize_directory(const std::string& path, Prefer prefer) {
  if (exists(path + "/" + manifest_name)) return {PathKind::checkpoint, path};
  const bool model =
      prefer != Prefer::checkpoint && (exists(path + "/" + model_file_name) || exists(path + "/" + index_file_name));
  if (model && prefer == Prefer::model) return {PathKind::model, path};
  // Named like a checkpoint, without a manifest: read_manifest reports that, or whose it is.
  const std::string name = fs::path(path).filename().string();
  if (checkpoint_step(name) && !model) return {PathKind::checkpoint, path};
  NewestCheckpoint newest;
  if (newest.find(path)) return newest.located;
  if (model) return {PathKind::model, path, newest.located.skipped};
  for (const auto& [version, directory] : list_versions(path))
    if (newest.find(directory)) return newest.located;
  if (const std::string trainer = newest_trainer_checkpoint(path, weight_file_names); !trainer.empty()) {
    if (prefer == Prefer::checkpoint)
      throw Error(ExitCode::data, "no checkpoint of this program in " + path + ", but a model in " + trainer, {},
                  "Start from its weights with --model " + trainer);
    return {PathKind::model, trainer};
  }
  if (const auto foreign = find_foreign_checkpoint(path)) throw foreign->error(path);
  if (!newest.problem.empty())
    throw Error(ExitCode::data, "no complete checkpoint in " + path + "; of the newest: " + newest.problem);
  if (prefer == Prefer::checkpoint)
    throw Error(ExitCode::data, "no checkpoint in " + path, {}, "Name a checkpoint-N, or a run's directory");
  throw Error(ExitCode::data, "neither a checkpoint nor a model in safetensors in " + path, {},
              "Name a checkpoint-N, a run's directory, or a directory with model.safetensors");
}

LocatedPath recognize_file(const std::string& path) {
  if (const auto foreign = find_foreign_checkpoint(path)) throw foreign->error(path);
  const File file = File::open_to_read(path);
  std::array<unsigned char, 12> head{};
  const std::uint64_t size = file.size();
  const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(size, head.size()));
  file.read_at(0, std::as_writable_bytes(std::span(head).first(n)));
  static constexpr unsigned char hdf5[] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  if (n >= sizeof hdf5 && std::memcmp(head.data(), hdf5, sizeof hdf5) == 0) return {PathKind::hdf5, path};
  std::int32_t magic = 0;
  std::memcpy(&magic, head.data(), sizeof magic);
  if (magic == 20240520 || magic == 20240801) return {PathKind::tokens, path};
  if (path.ends_with(".index.json")) return {PathKind::index, path};
  if (path.ends_with(".safetensors") || (n > 8 && head[8] == '{')) return {PathKind::safetensors, path};
  if (fs::path(path).filename() == manifest_name) return {PathKind::checkpoint, directory_of(path)};
  if (path.ends_with(".h5")) return {PathKind::hdf5, path};
  if (path.ends_with(".bin")) return {PathKind::tokens, path};
  throw Error(ExitCode::data, path + " is neither an HDF5 file, a safetensors file or index, nor a token file", {},
              "inspect, verify and diff know these, checkpoints, and model directories");
}

}  // namespace

LocatedPath recognize(const std::string& path, Prefer prefer) {
  std::error_code failed;
  if (!fs::exists(path, failed)) throw system_error("read", path, failed ? failed.value() : ENOENT);
  return fs::is_directory(path, failed) ? recognize_directory(path, prefer) : recognize_file(path);
}

}  // namespace tessera::io
