// SPDX-License-Identifier: Apache-2.0
#pragma once
// ScratchMemory: states of a run in a scratch file, as memory on disk.

#include <memory>
#include <mutex>
#include <vector>

#include "io/scratch/scratch_store.hpp"
#include "runtime/base/disk_memory.hpp"

namespace tessera::io {

/// A copy whose host memory begins on a page, at the begin of a block, is made without a copy in between, as fetches
/// and stores of states are; others go by way of a buffer, and a part of a block is read before it is written.
class ScratchMemory final : public DiskMemory {
 public:
  /// Throws Error (data) as ScratchStore.
  explicit ScratchMemory(ScratchStore::Spec spec);

  [[nodiscard]] const ScratchStore& store() const { return store_; }

 private:
  void read_parts(std::span<const Part> parts) override;
  void write_parts(std::span<const Part> parts) override;
  /// Begins all parts that the store moves in place; then moves the others, by `by_windows`(part); then waits.
  void move_parts(std::span<const Part> parts, const auto& begin, const auto& by_windows);
  /// Bytes [first, first + count) of the region's blocks from `block` on, which fit into a window.
  void read_window(std::size_t region, std::uint64_t first, std::span<std::byte> to);
  void write_window(std::size_t region, std::uint64_t first, std::span<const std::byte> from);

  ScratchStore store_;
  std::mutex parts_of_blocks_;  // two threads may write parts of one block
};

}  // namespace tessera::io
