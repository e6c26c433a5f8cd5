#pragma once
// Conversions between models on disk: into safetensors as Hugging Face's tools read them, and into a checkpoint of the
// model alone. Which tensor becomes which is the caller's. Collective; the bytes of the output do not depend on the
// number of ranks.

#include <span>

#include "io/convert/conversion.hpp"
#include "io/convert/output.hpp"
#include "runtime/base/param.hpp"

namespace tessera::io {

struct ConvertReport {
  std::uint64_t bytes = 0;  // of the output's weights
  std::int64_t tensors = 0;
  int files = 0;
  std::string backup;         // where what stood there before has gone; "" if nothing did
  double seconds = 0;         // to write, until it is committed
  double verify_seconds = 0;  // 0: not asked for
};

struct ConvertTarget {
  std::string directory;
  std::vector<AuxiliaryFile> auxiliary_files;  // rank 0's count
  bool replace = false;                        // a directory that stands there steps aside
  bool verify = false;                         // read both sides again and compare before it is committed
  std::uint64_t max_file_bytes = 0;            // safetensors: of a shard; checkpoint: of a state file
  std::string run_metadata = "{}";             // checkpoint: rank 0's
};

/// A tensor of the output and where its elements are.
struct ConvertTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::vector<TensorSlice> slices;
};

/// Throws Error (data) on every rank alike: what ModelDirectory and Conversion do, and no space (E140). Then
/// nothing is there that was not before.
ConvertReport convert_to_safetensors(World& world, const TensorCatalog& source,
                                     const std::vector<ConvertTensor>& tensors, const ConvertTarget& target,
                                     ConvertOptions options);
/// Tensors are the parameters in canonical order; their dtype is fp32. Step 0, no optimizer state.
ConvertReport convert_to_checkpoint(World& world, const TensorCatalog& source,
                                    const std::vector<ConvertTensor>& tensors, const ConvertTarget& target,
                                    ConvertOptions options);

}  // namespace tessera::io
