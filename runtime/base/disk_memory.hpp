// SPDX-License-Identifier: Apache-2.0
#pragma once
// DiskMemory: states of a run that are on disk, at addresses like those of memory.

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/base/device.hpp"

namespace tessera {

/// The device of views of what is on disk: of the host, and not its memory. Nothing is computed there.
inline constexpr Device disk_device{Device::Kind::host, 1};

/// Regions on disk, each at a range of addresses that nothing else has. A view of one has disk_device, and copy_now and
/// fill_now (runtime/base/transfer.hpp) move its bytes; a program that reads an address itself ends (SIGSEGV).
class DiskMemory {
 public:
  /// Reserves addresses; they take no memory. Each region begins on a page. Throws Error (does_not_fit).
  explicit DiskMemory(std::span<const std::size_t> bytes);
  virtual ~DiskMemory();
  DiskMemory(const DiskMemory&) = delete;

  [[nodiscard]] std::byte* data(std::size_t region) const { return base_ + begins_[region]; }

  /// The memory that has this address; null: none has.
  [[nodiscard]] static DiskMemory* of(const void* address);
  /// Copies between host memory and [address, address + to.size()), which lies in one region. What was never written is
  /// zero. Any thread; two threads must not write the same byte. Throws Error (data): the disk is full or fails.
  void read(const std::byte* address, std::span<std::byte> to);
  void write(std::byte* address, std::span<const std::byte> from);

  /// A copy between host memory and [disk, disk + bytes), which lies in one region.
  struct Copy {
    std::byte* disk = nullptr;
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };
  /// As read and write, of copies that do not overlap: the disk has the requests of all of them at once. On return,
  /// also by an exception, none is in progress.
  void read(std::span<const Copy> copies);
  void write(std::span<const Copy> copies);

 protected:
  /// Bytes of a region from `first` on.
  struct Part {
    std::size_t region = 0, first = 0;
    std::span<std::byte> memory;
  };
  virtual void read_parts(std::span<const Part> parts) = 0;
  virtual void write_parts(std::span<const Part> parts) = 0;

 private:
  [[nodiscard]] Part part_of(const Copy& copy) const;
  [[nodiscard]] std::vector<Part> parts_of(std::span<const Copy> copies) const;
  [[nodiscard]] std::size_t region_of(const std::byte* address, std::size_t bytes) const;

  std::vector<std::size_t> begins_, sizes_;
  std::size_t bytes_ = 0;
  std::byte* base_ = nullptr;
};

}  // namespace tessera
