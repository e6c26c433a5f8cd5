// SPDX-License-Identifier: Apache-2.0
#pragma once
// CheckpointTransaction: a checkpoint directory is made under a temporary name and committed by one rename, so that it
// is complete or does not exist. The caller writes the data. docs/checkpoints.md has the protocol.

#include <functional>
#include <string>
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
    std::string backup = {};                   // what an existing directory is renamed to; "": it is removed
    bool must_be_new = false;                  // an existing directory is an error at commit()
    std::vector<std::string> frozen = {};      // as Manifest::frozen
    std::optional<BaseModel> base = {};        // as Manifest::base
    std::uint64_t alignment = hdf5_alignment;  // as lay_out_hdf5
    /// Rank 0, before names change or anything is removed; what it throws ends the save and leaves all as it is.
    std::function<void()> check_owner = {};
  };
  /// Collective. Rank 0 makes DIRECTORY.tmp (removing an older one), lays out the HDF5 files and allocates their space;
  /// all ranks get the offsets. Throws Error (data) on every rank alike; then nothing is left behind.
  CheckpointTransaction(World& world, Spec spec);
  /// Rank 0 removes the temporary directory unless committed.
  ~CheckpointTransaction();
  CheckpointTransaction(const CheckpointTransaction&) = delete;

  /// With sizes and offsets; commit adds the CRCs.
  [[nodiscard]] const std::vector<StateFile>& files() const { return spec_.files; }
  /// Where the files are until commit; all ranks may write data sets there.
  [[nodiscard]] std::vector<std::string> paths() const;

  /// Rank 0: makes the layout durable; other ranks: does nothing. On any thread; commit does it otherwise. Throws Error
  /// (data).
  void sync_layout();

  /// Collective, after every rank's data are durable: joins the checksums (each byte of each data set must be written
  /// once), writes the manifest and renames the directory. `training` and `run_metadata` are used on rank 0. Throws
  /// Error (data) on every rank alike.
  void commit(const std::vector<RangeChecksum>& checksums, const std::string& training,
              const std::string& run_metadata);

 private:
  void make_temporary() const;
  void lay_out();
  void remove_temporary() const noexcept;
  void publish(const std::string& manifest);
  [[nodiscard]] std::string temporary() const { return spec_.directory + ".tmp"; }

  World& world_;
  Spec spec_;
  std::vector<RangeChecksum> headers_;  // rank 0: of the bytes outside data sets
  bool open_ = true, synced_ = false;
};

/// One process. Replaces the manifest of a complete checkpoint by a rename; its files stay as they are. Throws Error
/// (data).
void replace_manifest(const std::string& directory, const Manifest& manifest);

}  // namespace tessera::io
