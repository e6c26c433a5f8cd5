// SPDX-License-Identifier: Apache-2.0
// Copies of any bytes, by blocks of the store.
#include "io/scratch/scratch_memory.hpp"

#include <algorithm>
#include <cstring>
#include <exception>

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

void ScratchMemory::move_parts(std::span<const Part> parts, const auto& begin, const auto& by_windows) {
  const auto in_place = [&](const Part& part) {
    const BlockSpan blocks(part.first, part.first + part.memory.size(), store_.regions()[part.region].bytes);
    return blocks.begin == part.first && blocks.size() == part.memory.size() && on_a_page(part.memory.data());
  };
  std::vector<ScratchTransfer> begun;
  std::exception_ptr error;
  const auto keep_error = [&error](const auto& action) {
    try {
      action();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  };
  begun.reserve(parts.size());
  for (const Part& part : parts)
    if (in_place(part)) keep_error([&] { begun.push_back(begin(part)); });
  for (const Part& part : parts)
    if (!in_place(part)) keep_error([&] { by_windows(part); });
  for (const ScratchTransfer& transfer : begun) keep_error([&] { transfer.wait(); });
  if (error) std::rethrow_exception(error);
}

void ScratchMemory::read_parts(std::span<const Part> parts) {
  move_parts(
      parts, [this](const Part& part) { return store_.read(part.region, part.memory, part.first); },
      [this](const Part& part) {
        for_each_window(part.first, part.memory.size(), [&](std::uint64_t at, std::size_t count) {
          read_window(part.region, at, part.memory.subspan(static_cast<std::size_t>(at) - part.first, count));
        });
      });
}

void ScratchMemory::write_parts(std::span<const Part> parts) {
  move_parts(
      parts, [this](const Part& part) { return store_.write(part.region, part.memory, part.first); },
      [this](const Part& part) {
        for_each_window(part.first, part.memory.size(), [&](std::uint64_t at, std::size_t count) {
          write_window(part.region, at, part.memory.subspan(static_cast<std::size_t>(at) - part.first, count));
        });
      });
}

void ScratchMemory::read_window(std::size_t region, std::uint64_t first, std::span<std::byte> to) {
  const BlockSpan blocks(first, first + to.size(), store_.regions()[region].bytes);
  const DirectBuffer window(blocks.size());
  store_.read(region, window.span(), blocks.begin).wait();
  std::memcpy(to.data(), window.span().data() + (first - blocks.begin), to.size());
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
