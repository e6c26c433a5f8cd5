// SPDX-License-Identifier: Apache-2.0
// Copies of any bytes, by blocks of the store.
#include "io/scratch/scratch_memory.hpp"

#include <algorithm>
#include <cstring>

namespace tessera::io {

namespace {

constexpr std::uint64_t scratch_block = ScratchStore::block_bytes, window_bytes = 8 * scratch_block;

std::vector<std::size_t> sizes_of(const std::vector<ScratchRegion>& regions) {
  std::vector<std::size_t> sizes;
  for (const ScratchRegion& region : regions) sizes.push_back(static_cast<std::size_t>(region.bytes));
  return sizes;
}

bool on_a_page(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory) % direct_alignment == 0; }

/// The blocks that contain bytes [first, last) of a region of `bytes` bytes.
struct BlockSpan {
  BlockSpan(std::uint64_t first, std::uint64_t last, std::uint64_t bytes)
      : begin(first / scratch_block * scratch_block), end(std::min(round_up(last, scratch_block), bytes)) {}
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(end - begin); }
  std::uint64_t begin, end;
};

/// Whether the store moves these bytes from and to where they are.
bool moves_in_place(const BlockSpan& blocks, std::uint64_t first, std::size_t count, const void* memory) {
  return blocks.begin == first && blocks.size() == count && on_a_page(memory);
}

/// Calls `part`(first, count) for windows of blocks.
void for_each_window(std::uint64_t first, std::size_t count, const auto& part) {
  for (std::uint64_t at = first; at < first + count;) {
    const std::uint64_t end = std::min(first + count, (at / window_bytes + 1) * window_bytes);
    part(at, static_cast<std::size_t>(end - at));
    at = end;
  }
}

}  // namespace

ScratchMemory::ScratchMemory(ScratchStore::Spec spec) : DiskMemory(sizes_of(spec.regions)), store_(std::move(spec)) {}

void ScratchMemory::read_region(std::size_t region, std::size_t first, std::span<std::byte> to) {
  const BlockSpan blocks(first, first + to.size(), store_.regions()[region].bytes);
  if (moves_in_place(blocks, first, to.size(), to.data())) return store_.read(region, to, first).wait();
  for_each_window(first, to.size(), [&](std::uint64_t at, std::size_t count) {
    read_window(region, at, to.subspan(static_cast<std::size_t>(at - first), count));
  });
}

void ScratchMemory::read_window(std::size_t region, std::uint64_t first, std::span<std::byte> to) {
  const BlockSpan blocks(first, first + to.size(), store_.regions()[region].bytes);
  const DirectBuffer window(blocks.size());
  store_.read(region, window.span(), blocks.begin).wait();
  std::memcpy(to.data(), window.span().data() + (first - blocks.begin), to.size());
}

void ScratchMemory::write_region(std::size_t region, std::size_t first, std::span<const std::byte> from) {
  const BlockSpan blocks(first, first + from.size(), store_.regions()[region].bytes);
  if (moves_in_place(blocks, first, from.size(), from.data())) return store_.write(region, from, first).wait();
  for_each_window(first, from.size(), [&](std::uint64_t at, std::size_t count) {
    write_window(region, at, from.subspan(static_cast<std::size_t>(at - first), count));
  });
}

void ScratchMemory::write_window(std::size_t region, std::uint64_t first, std::span<const std::byte> from) {
  const BlockSpan blocks(first, first + from.size(), store_.regions()[region].bytes);
  const DirectBuffer window(blocks.size());
  const bool part = blocks.begin != first || blocks.size() != from.size();
  std::unique_lock lock(parts_of_blocks_, std::defer_lock);
  if (part) {
    lock.lock();
    store_.read(region, window.span(), blocks.begin).wait();
  }
  std::memcpy(window.span().data() + (first - blocks.begin), from.data(), from.size());
  store_.write(region, window.span(), blocks.begin).wait();
}

}  // namespace tessera::io
