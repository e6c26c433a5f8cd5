// SPDX-License-Identifier: Apache-2.0
#pragma once
// ModelDirectory: writes a model in safetensors (weights, index, config.json, tokenizer) so that a directory holds all
// of it or nothing. The contents of the weight files are written by the caller, by any number of ranks.

#include <string>
#include <vector>

#include "io/model/auxiliary_files.hpp"
#include "io/model/model_files.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::io {

inline constexpr const char* new_model_name = "model.new";

/// Puts the model in DIRECTORY/model.new in the place of an older one in DIRECTORY, and removes model.new; does nothing
/// if there is none. Of the files that change, the config is removed first and comes back last (if one file alone
/// changes, only that is renamed): DIRECTORY holds all of a model, or no config. Interrupted anywhere, DIRECTORY or
/// model.new holds all of the new model, or both together where the file system has no hard links; the next call
/// completes it. One process. Throws Error (data).
void put_model_in_place(const std::string& directory);
/// DIRECTORY, or its model.new where replacing the model was interrupted. Throws Error (data) if neither has all of it.
[[nodiscard]] std::string directory_of_model(const std::string& directory);

class ModelDirectory {
 public:
  enum class Holds : unsigned char {
    model_alone,  // The directory is made as DIRECTORY.tmp; one rename puts it in place. The caller has an OutputLock.
    other_files,  // A run's directory. The model is made in DIRECTORY/model.tmp, which one rename makes
                  // DIRECTORY/model.new; then its files replace an older model's (put_model_in_place).
  };
  /// Collective. Rank 0 makes the files at their full size, with space allocated. Throws Error (data) on every rank
  /// alike; then nothing is left behind. `files` must outlive it.
  ModelDirectory(World& world, std::string directory, const ModelFiles& files, Holds holds);
  /// Rank 0 removes what is not committed.
  ~ModelDirectory();
  ModelDirectory(const ModelDirectory&) = delete;

  /// Where the weight files are until commit(), in their order.
  [[nodiscard]] std::vector<std::string> paths() const;
  /// Collective, after the contents of the weight files are durable: writes `auxiliary_files`, config.json among them,
  /// and the index, then puts everything in place. `backup`: what an older directory is renamed to (model_alone); "":
  /// there must be none (E141). Throws Error (data) on every rank alike.
  void commit(const std::vector<AuxiliaryFile>& auxiliary_files, const std::string& backup = {});

 private:
  void make() const;
  void move_in(const std::vector<AuxiliaryFile>& auxiliary_files) const;
  [[nodiscard]] std::string temporary() const {
    return directory_ + (holds_ == Holds::other_files ? "/model.tmp" : ".tmp");
  }

  World& world_;
  std::string directory_;
  const ModelFiles& files_;
  Holds holds_;
  bool open_ = true;
};

}  // namespace tessera::io
