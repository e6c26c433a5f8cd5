// SPDX-License-Identifier: Apache-2.0
// Least recently used replacement. A block that one thread is reading is not read by another, which waits for it; where
// all slots hold such blocks, a thread waits for a slot.
#include <algorithm>
#include <cstring>

#include "io/inspect/tensor_catalog.hpp"

namespace tessera::io {

struct BlockCache::Slot {
  int file = -1;
  std::uint64_t block = 0, used = 0;
  int pins = 0;
  bool ready = false;
  int opened = -1;  // the file of `reader`
  std::unique_ptr<BlockReader> reader;
  std::span<const std::byte> bytes;

  void load(const CatalogFile& from) {
    if (opened != file) {
      opened = -1;
      reader = std::make_unique<BlockReader>(from.path, from.state);
      opened = file;
    }
    bytes = reader->block(block);
  }
};

BlockCache::BlockCache(const std::vector<CatalogFile>& files, int slots) : files_(files) {
  for (int i = 0; i < slots; ++i) slots_.push_back(std::make_unique<Slot>());
}
BlockCache::~BlockCache() = default;

BlockCache::Slot& BlockCache::pin(int file, std::uint64_t block) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto there =
        std::ranges::find_if(slots_, [&](const auto& s) { return s->file == file && s->block == block; });
    if (there != slots_.end()) {
      Slot& slot = **there;
      ++slot.pins;
      slot.used = ++clock_;
      changed_.wait(lock, [&] { return slot.ready || slot.file < 0; });
      if (slot.ready) return slot;
      --slot.pins;  // the thread that read it failed: this one tries, and throws its own error
      continue;
    }
    Slot* oldest = nullptr;
    for (const auto& s : slots_)
      if (s->pins == 0 && (oldest == nullptr || s->used < oldest->used)) oldest = s.get();
    if (oldest == nullptr) {  // each holds a block that a thread is reading
      changed_.wait(lock);
      continue;
    }
    Slot& slot = *oldest;
    slot.file = file;
    slot.block = block;
    slot.used = ++clock_;
    slot.ready = false;
    slot.pins = 1;
    lock.unlock();
    std::exception_ptr failed;
    try {
      slot.load(files_[static_cast<std::size_t>(file)]);
    } catch (...) { failed = std::current_exception(); }
    lock.lock();
    if (failed) {
      slot.file = -1;
      --slot.pins;
    } else {
      slot.ready = true;
      bytes_read_ += slot.bytes.size();
    }
    changed_.notify_all();
    if (failed) std::rethrow_exception(failed);
    return slot;
  }
}

void BlockCache::unpin(Slot& slot) {
  {
    const std::lock_guard lock(mutex_);
    --slot.pins;
  }
  changed_.notify_all();
}

void BlockCache::read(int file, std::uint64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    Slot& slot = pin(file, offset / block_bytes);
    const std::uint64_t inside = offset % block_bytes;
    const std::size_t there = slot.bytes.size();
    const std::size_t n = inside < there ? std::min(out.size(), there - static_cast<std::size_t>(inside)) : 0;
    if (n > 0) std::memcpy(out.data(), slot.bytes.data() + inside, n);
    unpin(slot);
    TESSERA_ASSERT(n > 0, "byte %lu of file %d", offset, file);
    out = out.subspan(n);
    offset += n;
  }
}

std::uint64_t BlockCache::bytes_read() const {
  const std::lock_guard lock(mutex_);
  return bytes_read_;
}

}  // namespace tessera::io
