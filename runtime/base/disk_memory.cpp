// SPDX-License-Identifier: Apache-2.0
// The addresses are a mapping without access rights; a list of all of them finds the memory of an address.
#include "runtime/base/disk_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>

#include "runtime/base/error.hpp"
#include "runtime/base/mapping.hpp"

namespace tessera {

namespace {
struct DiskMemories {
  std::mutex mutex;
  std::vector<DiskMemory*> all;
};
DiskMemories& disk_memories() {
  static DiskMemories memories;
  return memories;
}
}  // namespace

DiskMemory::DiskMemory(std::span<const std::size_t> bytes) : sizes_(bytes.begin(), bytes.end()) {
  for (const std::size_t size : sizes_) {
    begins_.push_back(bytes_);
    bytes_ += round_to_pages(size + 1);  // an address behind the end is of no other region
  }
  if (bytes_ == 0) return;
  void* const reserved = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED)
    throw Error(ExitCode::does_not_fit, strfmt("cannot reserve %zu bytes of addresses for states on disk", bytes_));
  base_ = static_cast<std::byte*>(reserved);
  DiskMemories& memories = disk_memories();
  const std::lock_guard lock(memories.mutex);
  memories.all.push_back(this);
}

DiskMemory::~DiskMemory() {
  if (base_ == nullptr) return;
  DiskMemories& memories = disk_memories();
  const std::lock_guard lock(memories.mutex);
  std::erase(memories.all, this);
  munmap(base_, bytes_);
}

DiskMemory* DiskMemory::of(const void* address) {
  const auto* const at = static_cast<const std::byte*>(address);
  DiskMemories& memories = disk_memories();
  const std::lock_guard lock(memories.mutex);
  const auto found = std::ranges::find_if(
      memories.all, [at](const DiskMemory* m) { return at >= m->base_ && at < m->base_ + m->bytes_; });
  return found == memories.all.end() ? nullptr : *found;
}

std::size_t DiskMemory::region_of(const std::byte* address, std::size_t bytes) const {
  const auto offset = static_cast<std::size_t>(address - base_);
  const auto region = static_cast<std::size_t>(std::ranges::upper_bound(begins_, offset) - begins_.begin() - 1);
  TESSERA_ASSERT(offset - begins_[region] + bytes <= sizes_[region], "%zu bytes at %zu of %zu on disk", bytes,
                 offset - begins_[region], sizes_[region]);
  return region;
}

DiskMemory::Part DiskMemory::part_of(const Copy& copy) const {
  const std::size_t region = region_of(copy.disk, copy.bytes);
  return {region, static_cast<std::size_t>(copy.disk - data(region)), {copy.memory, copy.bytes}};
}

std::vector<DiskMemory::Part> DiskMemory::parts_of(std::span<const Copy> copies) const {
  std::vector<Part> parts;
  for (const Copy& copy : copies) parts.push_back(part_of(copy));
  return parts;
}

void DiskMemory::read(std::span<const Copy> copies) { read_parts(parts_of(copies)); }
void DiskMemory::write(std::span<const Copy> copies) { write_parts(parts_of(copies)); }

void DiskMemory::read(const std::byte* address, std::span<std::byte> to) {
  const Part part = part_of({const_cast<std::byte*>(address), to.data(), to.size()});
  read_parts({&part, 1});
}

void DiskMemory::write(std::byte* address, std::span<const std::byte> from) {
  const Part part = part_of({address, const_cast<std::byte*>(from.data()), from.size()});
  write_parts({&part, 1});
}

}  // namespace tessera
