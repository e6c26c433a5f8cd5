// SPDX-License-Identifier: Apache-2.0
#pragma once
// manifest.json lists the files of a checkpoint with sizes and checksums. A directory without one is not a checkpoint.
// docs/checkpoints.md has the format.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/hdf5/hdf5_file.hpp"
#include "runtime/base/quantized.hpp"

namespace tessera::io {

inline constexpr const char* manifest_name = "manifest.json";
inline constexpr std::size_t max_manifest_bytes = std::size_t{256} << 20;  // bytes; longer files are refused
inline constexpr std::uint64_t block_bytes = 4u << 20;                     // what one CRC covers

/// An HDF5 file of the checkpoint, with a CRC32C for each block of it: headers, gaps and data.
struct StateFile {
  std::string name;  // "state-00001-of-00002.h5"
  std::uint64_t bytes = 0;
  std::vector<std::uint32_t> crcs;          // ceil(bytes / block_bytes); the last block may be short
  std::vector<Hdf5Dataset> datasets;        // by offset
  std::vector<std::uint32_t> dataset_crcs;  // of the elements of each, to name the damaged ones
};

/// config.json, tokenizer.json, …
struct AuxiliaryFileRecord {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint32_t crc = 0;
};

/// The frozen parameters of a checkpoint that does not hold them: those of the model that training started from.
struct BaseModel {
  DType dtype = DType::f32;  // that they were kept in
  std::uint32_t crc = 0;     // CRC32C of their elements in it, in canonical order; of quantized matrices, the bytes
  QuantFormat quantization = QuantFormat::none;  // of the matrices that were quantized
  friend bool operator==(const BaseModel&, const BaseModel&) = default;
};

struct Manifest {
  std::int64_t step = 0;
  bool optimizer = false;           // has moments
  std::vector<std::string> frozen;  // parameters that were not trained: they have no optimizer states
  std::optional<BaseModel> base;    // set: `frozen` are not in the files either
  std::vector<StateFile> files;
  std::vector<AuxiliaryFileRecord> auxiliary_files;
  std::string training;  // JSON object: what a resumed run needs besides tensors; equal for equal states
  std::string
      run_metadata;  // JSON object, "may_differ" in the file: what equal states may differ in (run, world, mesh, times)
};

/// The manifest's text; ends with its own CRC32C.
[[nodiscard]] std::string manifest_text(const Manifest& manifest);
/// Throws Error (data) naming `source` and what is wrong: its CRC (E131), another format (E130), a newer version
/// (E132), an unknown feature (E133), names that leave the directory (E110), sizes that do not add up (E122). Takes
/// memory in proportion to the text only.
[[nodiscard]] Manifest parse_manifest(std::string_view text, const std::string& source);

/// Bytes of block `block` of a file.
[[nodiscard]] inline std::uint64_t bytes_of_block(const StateFile& file, std::uint64_t block) {
  const std::uint64_t first = block * block_bytes;
  return file.bytes - first < block_bytes ? file.bytes - first : block_bytes;
}
/// Names the data sets that have bytes in [first, last) of the file: "/model/wte.weight", "3 data sets from … to …", or
/// "the file's headers".
[[nodiscard]] std::string describe_range(const StateFile& file, std::uint64_t first, std::uint64_t last);

}  // namespace tessera::io
