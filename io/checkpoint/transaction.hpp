#pragma once
// CheckpointTransaction: a checkpoint directory comes to be whole or not at all. Made under a temporary name; one
// rename commits it. docs/checkpoints.md has the protocol. What is written into its files between, and by whom, is the
// caller's.

#include <string>
#include <utility>
#include <vector>

#include "io/checkpoint/blocks.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/model/auxiliary_files.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::io {

class CheckpointTransaction {
 public:
  struct Spec {
    std::string directory;  // the final name, "out/v0-…/checkpoint-200"
    std::int64_t step = 0;
    bool optimizer = false;
    std::vector<StateFile> files;  // plan_state_files
    std::vector<AuxiliaryFile> auxiliary_files;
    std::string backup = {};  // where a directory that stands there goes; "": it is removed
  };
  /// Collective. Rank 0 makes DIRECTORY.tmp (removing what a dead run left of it), lays out the HDF5 files and takes
  /// their space; all ranks learn the offsets. Throws Error (data) on every rank alike; then nothing is left behind.
  CheckpointTransaction(World& world, Spec spec);
  /// Rank 0 removes the temporary directory unless committed.
  ~CheckpointTransaction();
  CheckpointTransaction(const CheckpointTransaction&) = delete;

  /// With sizes and offsets; the CRCs come with commit.
  [[nodiscard]] const std::vector<StateFile>& files() const { return spec_.files; }
  /// Of the files, in their temporary place; all ranks may write data sets there.
  [[nodiscard]] std::vector<std::string> paths() const;

  /// On rank 0: what it has laid out is on stable storage when this returns; elsewhere nothing. Once, on any thread;
  /// who does not call it leaves it to commit. Throws Error (data).
  void sync_layout();

  /// Collective, after every rank's data is on stable storage: joins the checksums (each byte of each data set must be
  /// there once), writes and syncs the manifest and the directory, and renames it; a directory of that name steps
  /// backup (Spec::backup). `training` and `run_metadata` are rank 0's. Throws Error (data) on every rank alike.
  void commit(const std::vector<RangeChecksum>& pieces, const std::string& training, const std::string& run_metadata);

 private:
  void lay_out();
  void publish(const std::string& manifest);
  [[nodiscard]] std::string temporary() const { return spec_.directory + ".tmp"; }

  World& world_;
  Spec spec_;
  std::vector<RangeChecksum> headers_;  // rank 0: of the bytes that no data set has
  bool open_ = true, synced_ = false;
};

}  // namespace tessera::io
