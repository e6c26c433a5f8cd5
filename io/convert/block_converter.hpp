#pragma once
// The plan of a conversion, and any block of the output made from it: which bytes of which stored tensors, and as what
// type. Reads the source; writes nothing.

#include <cstdint>
#include <string>
#include <vector>

#include "io/inspect/tensor_catalog.hpp"

namespace tessera::io {

/// Elements [first, first + count) of a stored tensor.
struct TensorSlice {
  int tensor = 0;  // index into TensorCatalog::tensors
  std::int64_t first = 0, count = 0;
};

/// A tensor of the output: the slices one after another, as `dtype`.
struct OutputTensor {
  std::string name;
  DType dtype = DType::f32;
  int file = 0;
  std::uint64_t offset = 0;
  std::int64_t numel = 0;
  std::vector<TensorSlice> slices;
};
/// An existing file of the right size. Bytes that belong neither to `header` nor to a tensor are left alone.
struct OutputFile {
  std::string path;
  std::uint64_t bytes = 0;
  std::string header;  // of its beginning
};
struct ConversionPlan {
  std::vector<OutputFile> files;
  std::vector<OutputTensor> tensors;
};

/// Bytes of a file.
struct ByteRange {
  std::uint64_t begin = 0, end = 0;
};

/// Memory of one thread.
struct ConvertBuffers {
  static constexpr std::size_t cast_bytes = 256u << 10;  // converted at a time: both sides stay in a core's cache
  DirectBuffer block{block_bytes};
  DirectBuffer from{cast_bytes}, to{cast_bytes};
  std::vector<ByteRange> parts;      // of the header and of each tensor that the block has, in order
  std::vector<ByteRange> stretches;  // the same, neighbours joined
};

class BlockConverter {
 public:
  /// Both must outlive it. Puts the plan's tensors in the order of (file, offset), without those that are empty. Throws
  /// Error (data): a type that cannot become the one wanted.
  BlockConverter(const TensorCatalog& source, ConversionPlan& plan);

  /// Bytes of `block` of `file` that the plan fills; 0: nothing to do there.
  [[nodiscard]] std::uint64_t filled(int file, std::uint64_t block) const {
    return filled_[static_cast<std::size_t>(file)][static_cast<std::size_t>(block)];
  }
  [[nodiscard]] std::uint64_t num_blocks(int file) const { return filled_[static_cast<std::size_t>(file)].size(); }
  /// Puts the block together in memory.block, whose first byte is the block's, and says in memory which bytes of the
  /// file are there. Throws Error (data): what BlockCache does; a value that the type cannot hold (E143).
  void assemble(int file, std::uint64_t block, BlockCache& cache, ConvertBuffers& memory) const;
  /// The tensor at a byte of the output; null in a header.
  [[nodiscard]] const OutputTensor* tensor_at(int file, std::uint64_t offset) const;

 private:
  [[nodiscard]] std::span<const OutputTensor> of_file(int file) const;
  void fill(const OutputTensor& tensor, ByteRange bytes, std::byte* out, BlockCache& cache,
            ConvertBuffers& memory) const;
  void fill_slice(const OutputTensor& tensor, const TensorSlice& slice, std::int64_t at, ByteRange bytes,
                  std::byte* out, BlockCache& cache, ConvertBuffers& memory) const;

  const TensorCatalog& source_;
  const ConversionPlan& plan_;
  std::vector<std::size_t> first_of_file_;          // index of the first tensor of each file, and one more
  std::vector<std::vector<std::uint64_t>> filled_;  // of each block of each file
};

}  // namespace tessera::io
