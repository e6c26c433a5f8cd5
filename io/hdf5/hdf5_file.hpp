#pragma once
// HDF5 files as checkpoints use them: a tree of contiguous data sets of plain numbers. Laid out and read back here by
// one process; the elements are written and read elsewhere, by any number of processes at once, at the offsets this
// hands out. A file that HDF5 opens proves nothing about its elements.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/dtype.hpp"

namespace tessera::io {

/// A data set, its true shape, and where its elements lie in the file (C order, little endian).
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

/// Offsets of data sets of hdf5_aligned_from bytes or more are multiples of hdf5_alignment.
inline constexpr std::uint64_t hdf5_alignment = 4096, hdf5_aligned_from = 512;

/// A file without its elements: what stands at the bytes that belong to no data set, zeros included.
struct Hdf5Layout {
  struct Metadata {
    std::uint64_t offset = 0;
    std::string bytes;
  };
  std::uint64_t file_bytes = 0;
  std::vector<Metadata> stretches;  // by offset; with the data sets they cover the file
};

/// Lays out a file with these data sets and groups in checksummed form (superblock 2), without times; fills in offset
/// and bytes. The same arguments give the same bytes in any process. In memory: nothing is written. Throws Error
/// (data): a name that cannot be one, a file-size limit below it.
[[nodiscard]] Hdf5Layout lay_out_hdf5(std::vector<Hdf5Dataset>& datasets, const std::vector<Hdf5Attribute>& attributes);

/// What a file holds. Throws Error (data) naming the file: not HDF5, truncated, or a feature that could reach outside
/// the file or run code (external storage, soft or external links, virtual data sets, filters, committed or compound
/// types): nothing of it is followed. The library behind it is not made for hostile files: check the bytes first where
/// a checksum is there.
[[nodiscard]] Hdf5Contents read_hdf5(const std::string& path);

/// "1.10.8, parallel": the library in use.
[[nodiscard]] std::string hdf5_version();

}  // namespace tessera::io
