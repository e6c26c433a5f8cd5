// SPDX-License-Identifier: Apache-2.0
#pragma once
// Compressed files of a data set, decompressed once into a directory, from which they are mapped like others.

#include <functional>
#include <string>
#include <vector>

#include "io/data/data_files.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::io {

struct DecompressOptions {
  std::function<std::string()> directory;     // called where a file is compressed
  std::function<void(const DataFile&)> made;  // called on the rank that has decompressed one; may be empty
  std::function<void()> check;                // called on every rank that decompresses, often; may be empty
  std::uint64_t reserve = std::uint64_t{256} << 20;
};

/// Collective. Decompresses the files that are compressed by gzip or zstd into a directory and sets
/// DataFile::copy. The name there is made of the file's path, size and time of change: what an earlier run has
/// made is used again. Each file is decompressed by one rank; all ranks must see one file system. Throws on every rank
/// alike: Error (data) as decompress, or if less than `reserve` bytes would be left on the disk; what `check` throws on
/// any rank.
void decompress_files(World& world, std::vector<DataFile>& files, const DecompressOptions& options);

}  // namespace tessera::io
