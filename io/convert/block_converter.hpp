// SPDX-License-Identifier: Apache-2.0
#pragma once
// The plan of a conversion, and BlockConverter, which computes any block of the output from it. Reads the source;
// writes nothing.

#include <cstdint>
#include <string>
#include <vector>

#include "io/inspect/tensor_catalog.hpp"

namespace tessera::io {

/// Elements [first, first + count) of a source tensor; bytes, if its type is not known (TensorEntry::known).
struct TensorSlice {
  int tensor = 0;  // index into TensorCatalog::tensors
  std::int64_t first = 0, count = 0;
};

/// A tensor of the output: its slices one after another, converted to `dtype`.
struct OutputTensor {
  std::string name;
  DType dtype = DType::f32;
  int file = 0;
  std::uint64_t offset = 0;
  std::int64_t numel = 0;
  std::vector<TensorSlice> slices;
};
/// An existing file of the right size. Bytes that belong neither to `header` nor to a tensor are not written.
struct OutputFile {
  std::string path;
  std::uint64_t bytes = 0;
  std::string header;  // its first bytes
};
struct ConversionPlan {
  std::vector<OutputFile> files;
  std::vector<OutputTensor> tensors;
};

/// Bytes [begin, end) of a file.
struct ByteRange {
  std::uint64_t begin = 0, end = 0;
};

/// Memory of one thread.
struct ConvertBuffers {
  static constexpr std::size_t cast_bytes = 256u << 10;  // converted at a time: source and result fit the L2 cache
  DirectBuffer block{block_bytes};
  DirectBuffer from{cast_bytes}, to{cast_bytes};
  std::vector<ByteRange> ranges;  // of the header and of each tensor in the block, in order
  std::vector<ByteRange> joined;  // the same, adjacent ranges as one
};

class BlockConverter {
 public:
  /// Both must outlive it. Sorts the plan's tensors by (file, offset) and drops empty ones. Throws Error (data): a type
  /// that cannot be converted to the output's.
  BlockConverter(const TensorCatalog& source, ConversionPlan& plan);

  /// How many bytes of `block` of `file` the plan fills.
  [[nodiscard]] std::uint64_t filled(int file, std::uint64_t block) const {
    return filled_[static_cast<std::size_t>(file)][static_cast<std::size_t>(block)];
  }
  [[nodiscard]] std::uint64_t num_blocks(int file) const { return filled_[static_cast<std::size_t>(file)].size(); }
  /// Computes the block into buffers.block and sets buffers.ranges and buffers.joined. Throws Error (data): as
  /// BlockCache does; a value that the output's type cannot hold (E143).
  void convert(int file, std::uint64_t block, BlockCache& cache, ConvertBuffers& buffers) const;
  /// The tensor at a byte of the output; null: a header.
  [[nodiscard]] const OutputTensor* tensor_at(int file, std::uint64_t offset) const;

 private:
  [[nodiscard]] std::span<const OutputTensor> of_file(int file) const;
  void fill(const OutputTensor& tensor, ByteRange bytes, std::byte* out, BlockCache& cache,
            ConvertBuffers& buffers) const;
  void fill_slice(const OutputTensor& tensor, const TensorSlice& slice, std::int64_t at, ByteRange bytes,
                  std::byte* out, BlockCache& cache, ConvertBuffers& buffers) const;

  const TensorCatalog& source_;
  const ConversionPlan& plan_;
  std::vector<std::size_t> first_of_file_;          // index of the first tensor of each file, and one more
  std::vector<std::vector<std::uint64_t>> filled_;  // of each block of each file
};

}  // namespace tessera::io
