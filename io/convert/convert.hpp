// SPDX-License-Identifier: Apache-2.0
#pragma once
// Converts models on disk: into safetensors as Hugging Face's tools read them, and into a checkpoint without optimizer
// state. The caller decides which source tensor becomes which output tensor. Collective; the bytes of the output do not
// depend on the number of ranks.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/convert/conversion.hpp"
#include "io/convert/output.hpp"
#include "io/model/auxiliary_files.hpp"
#include "io/model/safetensors.hpp"
#include "runtime/base/param.hpp"

namespace tessera::io {

struct ConvertReport {
  std::uint64_t bytes = 0;  // of the output's weights
  std::int64_t tensors = 0;
  int files = 0;
  std::string backup;         // what an older output directory is called now; "": there was none
  double seconds = 0;         // of writing
  double verify_seconds = 0;  // 0: not asked for
};

struct ConvertTarget {
  std::string directory;
  std::vector<AuxiliaryFile> auxiliary_files;  // used on rank 0
  bool replace = false;                        // an existing directory is renamed (backup_path)
  bool verify = false;                         // read source and output again and compare before the commit
  std::uint64_t max_file_bytes = 0;            // safetensors: of a shard; checkpoint: of a state file
  std::string run_metadata = "{}";             // of a checkpoint; used on rank 0
  std::string file;  // safetensors: the one file, in place of those of a model; "": of a model
  std::map<std::string, std::string> metadata;  // safetensors: of the headers, beside "format"
};

/// A tensor of the output and the source elements it is made of.
struct ConvertTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::vector<TensorSlice> slices;
  /// safetensors: what the header says in place of dtype and shape, which then are those of a list of elements; of
  /// bytes (u8) where the type is not known.
  std::optional<StoredForm> stored = {};
};

/// The caller has an OutputLock on the directory. Throws Error (data) on every rank alike: as ModelDirectory and
/// Conversion do; not enough space (E140); the directory exists by now (E141). Then no new file is left.
ConvertReport convert_to_safetensors(World& world, const TensorCatalog& source,
                                     const std::vector<ConvertTensor>& tensors, const ConvertTarget& target,
                                     ConvertOptions options);
/// `tensors` are the parameters in canonical order, as fp32. The checkpoint is of step 0 and has no optimizer state.
ConvertReport convert_to_checkpoint(World& world, const TensorCatalog& source,
                                    const std::vector<ConvertTensor>& tensors, const ConvertTarget& target,
                                    ConvertOptions options);

}  // namespace tessera::io
