// SPDX-License-Identifier: Apache-2.0
#pragma once
// Carries a conversion out: each rank computes and writes disjoint blocks of the output, balanced by bytes. Memory does
// not depend on the model's size. Knows neither file formats nor how the output is committed.

#include <functional>
#include <mutex>

#include "io/convert/block_converter.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::io {

struct ConvertProgress {
  std::uint64_t done = 0, total = 0;  // bytes of the output, over all ranks
  double seconds = 0;
};
struct ConvertOptions {
  int threads = 2;                                       // of a rank
  bool checksums = false;                                // fill checksums()
  std::function<void(const ConvertProgress&)> progress;  // called on every rank, now and then
};

/// Blocks of the source that a rank keeps in memory, or a few more than it has threads. With the buffers of its threads
/// that makes about 110 MiB at 2 threads.
inline constexpr int cache_slots = 20;

class Conversion {
 public:
  /// Throws Error (data) as BlockConverter does. `source` must outlive it.
  Conversion(const TensorCatalog& source, ConversionPlan plan, ConvertOptions options);
  Conversion(const Conversion&) = delete;

  /// Collective: writes everything, durably. Throws Error (data) on every rank alike: the system's errors, and those of
  /// BlockConverter::convert.
  void write(World& world);
  /// Collective: reads source and output again, other blocks on other ranks and in another order, and compares every
  /// element. Throws Error (data), E144, naming the tensors that differ.
  void verify(World& world);

  /// Of what this rank has written, in no order; empty unless asked for.
  [[nodiscard]] const std::vector<RangeChecksum>& checksums() const { return checksums_; }
  /// Bytes of the output that the plan fills, over all ranks.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// Bytes read from the source by this rank.
  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  struct OutputBlock {
    int file = 0;
    std::uint64_t block = 0, bytes = 0;
  };
  struct Thread;
  enum class Pass : unsigned char { write, verify };
  [[nodiscard]] std::vector<OutputBlock> blocks_of_rank(int rank, int ranks) const;
  /// Collective: all blocks, on threads; ranks agree on errors after each round.
  void run(World& world, const std::vector<OutputBlock>& blocks, Pass pass);
  void write_block(const OutputBlock& block, BlockCache& cache, Thread& thread);
  void compare_block(const OutputBlock& block, BlockCache& cache, Thread& thread);

  const TensorCatalog& source_;
  ConversionPlan plan_;
  BlockConverter block_converter_;
  ConvertOptions options_;
  std::vector<OutputBlock> blocks_;  // of all ranks, in the order of (file, block)
  std::uint64_t bytes_ = 0, bytes_read_ = 0;
  std::mutex mutex_;  // of what follows, while threads run
  std::vector<RangeChecksum> checksums_;
  std::vector<std::string> different_;  // names of tensors
};

}  // namespace tessera::io
