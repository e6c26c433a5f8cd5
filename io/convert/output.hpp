#pragma once
// Where a conversion writes: what is refused beforehand, and a model directory in safetensors that
// comes to be whole or not at all.

#include <string>
#include <vector>

#include "io/checkpoint/transaction.hpp"
#include "io/model/model_files.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::io {

/// Throws Error (data): `output` exists and `replace` is false (E141); it is `input`, inside it, or around it (E142);
/// OUTPUT.tmp holds what no conversion has left (E141). Makes the directory above `output`. One process.
void check_output(const std::string& input, const std::string& output, bool replace);
/// Throws Error (data), E140, unless the file system of `output` has room for `bytes` more.
void check_space(const std::string& output, std::uint64_t bytes);
/// "OUT.old", or the first of "OUT.old.2", … that is not there.
[[nodiscard]] std::string backup_path(const std::string& path);

/// config.json, and the companions of the weights that are there. Throws Error (data): no config.json.
[[nodiscard]] std::vector<AuxiliaryFile> read_model_auxiliary_files(const std::string& directory);

/// A directory of a model in safetensors. Made as DIRECTORY.tmp; one rename commits it.
class ModelDirectory {
 public:
  /// Collective. Rank 0 makes it and the files at their full size, space taken, with nothing in them. Throws Error
  /// (data) on every rank alike; then nothing is left behind. `files` must outlive it.
  ModelDirectory(World& world, std::string directory, const ModelFiles& files);
  /// Rank 0 removes what is not committed.
  ~ModelDirectory();
  ModelDirectory(const ModelDirectory&) = delete;

  /// In order of the files, in their temporary place.
  [[nodiscard]] std::vector<std::string> paths() const;
  /// Collective, after all data are on stable storage: auxiliary files, the index, then the rename. What stood there
  /// goes to `aside`. Throws Error (data) on every rank alike.
  void commit(const std::vector<AuxiliaryFile>& auxiliary_files, const std::string& aside);

 private:
  void publish(const std::vector<AuxiliaryFile>& auxiliary_files, const std::string& aside) const;
  [[nodiscard]] std::string temporary() const { return directory_ + ".tmp"; }

  World& world_;
  std::string directory_;
  const ModelFiles& files_;
  bool open_ = true;
};

}  // namespace tessera::io
