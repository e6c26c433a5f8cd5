// SPDX-License-Identifier: Apache-2.0
#pragma once
// TensorCatalog: the tensors of a checkpoint, a model in safetensors or an HDF5 file, with the byte range of each.
// BlockCache: how several threads read them.

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/blocks.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/model/model_match.hpp"
#include "io/model/safetensors.hpp"

namespace tessera::io {

/// A tensor's elements are one byte range, in C order, little endian.
struct TensorEntry {
  std::string name;          // "/model/h.0.ln_1.weight" in a checkpoint; else the file's own
  const char* type = "F32";  // as safetensors names it
  bool known = true;         // `dtype` is valid
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  int file = 0;
  std::uint64_t offset = 0, bytes = 0;
  [[nodiscard]] std::int64_t numel() const;
};

/// A file, with the CRC of each block if it is a checkpoint's.
struct CatalogFile {
  std::string path;
  StateFile state;  // name and bytes; CRCs and data sets if it is a checkpoint's
};

struct TensorCatalog {
  std::vector<CatalogFile> files;
  std::vector<TensorEntry> tensors;  // in the order of (file, offset)
  /// Of the headers of safetensors files; where files differ, the value of the first one, and the key is in
  /// `differing_metadata`, too.
  std::map<std::string, std::string> metadata;
  std::set<std::string> differing_metadata;
  /// Null if there is none of that name.
  [[nodiscard]] const TensorEntry* find(const std::string& name) const;
  /// Call it when all tensors are added.
  void make_index();

 private:
  std::vector<std::size_t> by_name_;
};

/// Of a model in safetensors (open_safetensors_model). Throws Error (data).
[[nodiscard]] TensorCatalog catalog_safetensors(const std::string& path);
/// Of a checkpoint whose manifest has been checked.
[[nodiscard]] TensorCatalog catalog_checkpoint(const std::string& directory, const Manifest& manifest);
/// Of one HDF5 file that read_hdf5 has described, without checksums.
[[nodiscard]] TensorCatalog catalog_hdf5(const std::string& path, const std::vector<Hdf5Dataset>& datasets);

/// Keeps the most recently used blocks of these files. Any number of threads; where more than `slots` read at a time,
/// some wait.
class BlockCache {
 public:
  /// Uses up to slots · block_bytes of memory.
  BlockCache(const std::vector<CatalogFile>& files, int slots);
  ~BlockCache();
  BlockCache(const BlockCache&) = delete;

  /// Reads bytes [offset, offset + out.size()) of a file. Throws Error (data): a damaged block (E123), a
  /// file that has become shorter.
  void read(int file, std::uint64_t offset, std::span<std::byte> out);
  /// Bytes read from disk.
  [[nodiscard]] std::uint64_t bytes_read() const;

 private:
  struct Slot;
  Slot& pin(int file, std::uint64_t block);
  void unpin(Slot& slot);

  const std::vector<CatalogFile>& files_;
  std::vector<std::unique_ptr<Slot>> slots_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t clock_ = 0, bytes_read_ = 0;
};

}  // namespace tessera::io
