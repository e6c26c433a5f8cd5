// SPDX-License-Identifier: Apache-2.0
#pragma once
// HDF5 files as checkpoints use them: contiguous data sets of plain numbers. One process lays a file out or reads its
// structure; any number of processes write and read the elements at the offsets given here, without HDF5.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/dtype.hpp"

namespace tessera::io {

/// A data set and the byte range of its elements (C order, little endian).
struct Hdf5Dataset {
  std::string path;  // "/model/h.0.ln_1.weight"
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0, bytes = 0;
  friend bool operator==(const Hdf5Dataset&, const Hdf5Dataset&) = default;
};

/// A root attribute: text, or a number.
struct Hdf5Attribute {
  std::string name;
  std::string text;         // if not empty
  std::int64_t number = 0;  // else
  friend bool operator==(const Hdf5Attribute&, const Hdf5Attribute&) = default;
};

struct Hdf5Contents {
  std::vector<Hdf5Dataset> datasets;      // by offset
  std::vector<Hdf5Attribute> attributes;  // by name
};

/// Offsets of data sets of hdf5_aligned_from bytes or more are multiples of hdf5_alignment, if nothing else is asked.
inline constexpr std::uint64_t hdf5_alignment = 4096, hdf5_aligned_from = 512;

/// A file without its elements: the bytes outside data sets, zeros included.
struct Hdf5Layout {
  struct Metadata {
    std::uint64_t offset = 0;
    std::string bytes;
  };
  std::uint64_t file_bytes = 0;
  std::vector<Metadata> metadata;  // by offset; with the data sets they cover the file
};

/// Lays out a file with these data sets in memory (superblock 2, with checksums and without times), and sets their
/// offset and bytes. The same arguments give the same bytes in any process. Throws Error (data): an invalid name, a
/// size above the process's file-size limit. `alignment`, a power of two of at least hdf5_alignment: offsets of data
/// sets of so many bytes or more are multiples of it (of hdf5_aligned_from bytes or more for hdf5_alignment itself).
[[nodiscard]] Hdf5Layout lay_out_hdf5(std::vector<Hdf5Dataset>& datasets, const std::vector<Hdf5Attribute>& attributes,
                                      std::uint64_t alignment = hdf5_alignment);

/// What a file holds. Throws Error (data) naming the file: not HDF5, truncated, or with a feature that could reach
/// outside the file or run code (external storage, soft or external links, virtual data sets, filters, committed or
/// compound types). libhdf5 is not safe with hostile files: check the bytes first if there is a checksum, else use a
/// sandbox.
[[nodiscard]] Hdf5Contents read_hdf5(const std::string& path);

}  // namespace tessera::io
