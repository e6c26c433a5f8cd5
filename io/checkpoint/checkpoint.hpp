// SPDX-License-Identifier: Apache-2.0
#pragma once
// Saves and loads sharded training states. A checkpoint does not depend on the number of ranks, the ZeRO stage or the
// mesh: any of them loads what any other saved.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/state.hpp"
#include "io/checkpoint/transaction.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::io {

/// How the elements of a checkpoint's files are written; the bytes are the same.
enum class CheckpointIo : unsigned char {
  direct,  // by threads of each rank, past the page cache where possible
  mpio,    // by parallel HDF5 and MPI-IO, all ranks together, in commit(); ranks are processes
};

struct SaveRequest {
  std::string directory;  // the final name
  std::int64_t step = 0;
  std::span<const ParamSpec> params;
  const shard::ShardLayout* layout = nullptr;
  TrainingState state;            // this rank's
  std::optional<BaseModel> base;  // set (base_model): frozen parameters are left out
  /// Refuse to save if replicas differ. Reads the whole state once more. The same on every rank.
  bool compare_replicas = true;
  std::uint64_t file_bytes = default_file_bytes;
  std::uint64_t alignment = hdf5_alignment;  // of large data sets in their files, as lay_out_hdf5
  CheckpointIo io = CheckpointIo::direct;
  std::vector<AuxiliaryFile> auxiliary_files;
  std::string training = "{}", run_metadata = "{}";  // JSON objects; used on rank 0
  std::span<std::byte> snapshot;                     // empty, as always with mpio: memory must not change until commit
  int threads = 2;                                   // of this rank, for writing
  std::function<void()> check_owner;                 // as CheckpointTransaction::Spec
  static constexpr std::uint64_t default_file_bytes = std::uint64_t{32} << 30;
};

/// Collective. The record of the frozen parameters `names`, which `state` holds; all ranks get it. Equal for equal
/// values, whatever the mesh. Values that are kept in another type count as rounded to `dtype`. Throws Error (data):
/// replicas differ.
[[nodiscard]] BaseModel base_model(World& world, std::span<const ParamSpec> params, const shard::ShardLayout& layout,
                                   const TrainingState& state, std::span<const std::string> names, DType dtype);

/// The format of the parameters that are quantized; none: no parameter is.
[[nodiscard]] QuantFormat quantization_in(std::span<const ParamSpec> params);
/// E145: the frozen parameters in place are not those of the checkpoint's base model.
[[nodiscard]] Error other_base_error(const std::string& checkpoint, std::uint32_t found, std::uint32_t expected);

struct SaveReport {
  std::uint64_t bytes = 0;   // of all data sets
  double seconds = 0;        // from construction to the end of commit
  std::uint64_t copied = 0;  // by this rank to the snapshot
  double cpu_seconds = 0;    // CPU time of this rank's writing threads
};

/// A save in progress: construct (collective), continue training if there is a snapshot, commit (collective).
class CheckpointSave {
 public:
  /// Collective; on return the threads are writing. Throws Error (internal) if replicas are compared and differ: data
  /// are corrupt.
  CheckpointSave(World& world, const SaveRequest& request);
  ~CheckpointSave();
  /// When it returns, the unit's memory may change.
  void before_update(int unit);
  /// This rank's data are durable, or writing them has failed.
  [[nodiscard]] bool finished() const;
  /// Collective: waits for all ranks, then commits. Throws Error (data) on every rank alike; then there is no new
  /// checkpoint.
  SaveReport commit();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

struct LoadReport {
  std::uint64_t bytes = 0;       // filled, over all ranks
  std::uint64_t bytes_read = 0;  // read from disk by this rank
  double seconds = 0;
};

/// An existing checkpoint, its manifest checked.
class CheckpointReader {
 public:
  /// Collective. Rank 0 checks the manifest, the sizes, the blocks with headers, the auxiliary files, and that HDF5
  /// finds the data sets that the manifest lists. Throws Error (data) on every rank alike.
  CheckpointReader(World& world, std::string directory);

  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  [[nodiscard]] const std::string& directory() const { return directory_; }
  [[nodiscard]] std::vector<std::string> paths() const;
  /// Collective. The text of an auxiliary file ("config.json"), checked; "" if it does not exist.
  [[nodiscard]] std::string auxiliary_file(const std::string& name) const;
  /// Collective. Fills the shards, with the optimizer states that `state` lists; padding becomes zero. Parameters are
  /// converted to the views' types. States of parameters that are trained now and were frozen then become zero. If the
  /// manifest has a `base`, the frozen parameters must be in place already: they are compared with it (E145), and stay.
  /// Throws Error (data) on every rank alike: damage (E123), other shapes than the model's (E113), missing or
  /// unexpected tensors (E112), no optimizer states at all, a value that the view's type cannot hold.
  LoadReport load(std::span<const ParamSpec> params, const shard::ShardLayout& layout, const TrainingState& state,
                  int threads = 3) const;

 private:
  void check_base(std::span<const ParamSpec> params, const shard::ShardLayout& layout,
                  const TrainingState& state) const;
  World& world_;
  std::string directory_;
  Manifest manifest_;
};

/// Reads and checks DIRECTORY/manifest.json and the sizes of all files. One process. Throws Error (data).
[[nodiscard]] Manifest read_manifest(const std::string& directory);
/// Checks the CRC of the blocks with headers or gaps, then compares what HDF5 finds with the manifest. One process.
/// Throws Error (data).
void check_headers(const std::string& directory, const Manifest& manifest);

/// An auxiliary file's text, checked (E123). One process. Throws Error (data).
[[nodiscard]] std::string read_auxiliary_file(const std::string& directory, const AuxiliaryFileRecord& auxiliary_file);

}  // namespace tessera::io
