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

class ModelDirectory {
 public:
  enum class Holds : unsigned char {
    model_alone,  // The directory is made as DIRECTORY.tmp; one rename puts it in place.
    other_files,  // A run's directory. The model is made in DIRECTORY/model.tmp. commit() removes an older config.json,
                  // moves the files in and renames config.json last: without one, a directory is no model.
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
  /// it is removed. Throws Error (data) on every rank alike.
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
