#pragma once
// Checkpoint: a sharded training state on disk, written and read by slices: any world, stage or
// mesh reads what any other wrote.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/state.hpp"
#include "io/checkpoint/transaction.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::io {

struct SaveRequest {
  std::string directory;  // the final name
  std::int64_t step = 0;
  std::span<const ParamSpec> params;
  const shard::ShardLayout* layout = nullptr;
  std::vector<StateView> shards;  // this rank's; moments null: the model alone is saved
  int replica = 0, replicas = 1;  // this rank's place among those that hold the same shards
  bool compare_replicas =
      true;  // the same on every rank: refuse to save where replicas differ; reads all of the state once more
  std::uint64_t file_bytes = default_file_bytes;
  std::vector<AuxiliaryFile> auxiliary_files;
  std::string training = "{}", run_metadata = "{}";  // JSON objects; rank 0's count
  std::span<std::byte> snapshot;                     // empty: memory must stay as it is until commit
  int threads = 2;                                   // that write, on this rank
  static constexpr std::uint64_t default_file_bytes = std::uint64_t{32} << 30;
};

struct SaveReport {
  std::uint64_t bytes = 0;   // of all data sets
  double seconds = 0;        // from the beginning to the commit
  std::uint64_t copied = 0;  // by this rank to the snapshot, since training came to them before the disk
  double cpu_seconds = 0;    // of this rank's threads that wrote: checksums and system calls
};

/// A save in progress. Construct (collective), let training go on if there is a snapshot, commit (collective).
class CheckpointSave {
 public:
  /// Collective; on return the writing has begun. If replicas are compared and differ, throws Error
  /// (internal: silent corruption).
  CheckpointSave(World& world, const SaveRequest& request);
  ~CheckpointSave();
  /// The unit's memory may change when this returns.
  void before_update(int unit);
  /// This rank's part is on stable storage, or has failed.
  [[nodiscard]] bool finished() const;
  /// Collective: waits for everybody, then commits. Throws Error (data) on every rank alike; the directory is then not
  /// there.
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
  /// Collective. Rank 0 checks the manifest, the sizes, the blocks that hold headers, the auxiliary files, and that
  /// HDF5 sees what the manifest says. Throws Error (data) on every rank alike: what is wrong, where.
  CheckpointReader(World& world, std::string directory);

  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  [[nodiscard]] const std::string& directory() const { return directory_; }
  [[nodiscard]] std::vector<std::string> paths() const;
  /// Collective. The text of an auxiliary file ("config.json"), checked; "" if there is none of that name.
  [[nodiscard]] std::string auxiliary_file(const std::string& name) const;
  /// Collective. Fills the shards, moments where the views have them; padding becomes zero. Every block is checked
  /// before it is used. Throws Error (data) on every rank alike: damage (E123), shapes that are not the model's (E113),
  /// tensors missing or unexpected (E112), no moments.
  LoadReport load(std::span<const ParamSpec> params, const shard::ShardLayout& layout,
                  std::span<const StateView> shards, int threads = 3) const;

 private:
  World& world_;
  std::string directory_;
  Manifest manifest_;
};

/// Reads and checks DIRECTORY/manifest.json alone, and that every file has the size it says. No World. Throws Error
/// (data).
[[nodiscard]] Manifest read_manifest(const std::string& directory);
/// The blocks with headers or gaps, by their CRC, and then by HDF5 against the manifest. No World. Throws Error (data).
void check_headers(const std::string& directory, const Manifest& manifest);

/// An auxiliary file's text, checked (E123). No World. Throws Error (data).
[[nodiscard]] std::string read_auxiliary_file(const std::string& directory, const AuxiliaryFileRecord& auxiliary_file);

}  // namespace tessera::io
