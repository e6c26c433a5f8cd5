// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/arena.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <utility>

#include "runtime/base/cuda/memory.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/transfer.hpp"

namespace tessera {

namespace {
constexpr unsigned char canary = 0xA5, paint_pattern = 0xC3;

bool has_canary(const ArenaSlot& slot) {
  return (slot.placement == Placement::own && slot.memory != Memory::disk) || slot.placement == Placement::peers_read;
}

std::size_t with_canary(const ArenaSlot& slot) { return slot.bytes + (has_canary(slot) ? Arena::canary_bytes : 0); }

/// Bytes of the own slots of each memory and category.
struct BlockSizes {
  explicit BlockSizes(const std::vector<ArenaSlot>& slots) {
    for (const auto& slot : slots)
      if (slot.placement == Placement::own) of(slot.memory, slot.category) += round_to_pages(with_canary(slot));
    for (std::size_t& bytes : bytes_[static_cast<int>(Memory::device)])
      bytes = (bytes + Arena::device_block_bytes - 1) / Arena::device_block_bytes * Arena::device_block_bytes;
  }
  std::size_t& of(Memory memory, Category category) {
    return bytes_[static_cast<int>(memory)][static_cast<int>(category)];
  }

 private:
  std::size_t bytes_[num_memories][num_categories] = {};
};

/// Calls `work` for each memory and category.
template <class Work>
void for_each_block(const Work& work) {
  for (int m = 0; m < num_memories; ++m)
    for (int c = 0; c < num_categories; ++c) work(static_cast<Memory>(m), static_cast<Category>(c));
}

std::vector<ArenaSlot> slots_on_disk(const std::vector<ArenaSlot>& slots) {
  std::vector<ArenaSlot> on_disk;
  for (const ArenaSlot& slot : slots)
    if (slot.memory == Memory::disk) on_disk.push_back(slot);
  return on_disk;
}
}  // namespace

const char* name_of(Category category) {
  static constexpr const char* names[] = {"params", "grads", "optimizer", "activations", "buffers", "comm"};
  return names[static_cast<int>(category)];
}

void MemoryTable::add(Memory memory, Category category, std::size_t bytes) {
  by_memory[static_cast<int>(memory)] += bytes;
  if (memory != Memory::disk) by_category[static_cast<int>(category)] += bytes;
}

std::size_t MemoryTable::total() const { return std::reduce(std::begin(by_category), std::end(by_category)); }

MemoryTable planned_memory(const std::vector<ArenaSlot>& slots) {
  MemoryTable table;
  BlockSizes sizes(slots);
  for_each_block([&](Memory memory, Category category) { table.add(memory, category, sizes.of(memory, category)); });
  for (const auto& slot : slots) {
    if (slot.placement == Placement::own) continue;
    const std::size_t region = round_to_pages(with_canary(slot) * static_cast<std::size_t>(slot.sharers));
    table.add(slot.memory, slot.category,
              slot.placement == Placement::transport ? slot.bytes : part_of(region, slot.sharers, slot.index));
  }
  return table;
}

Arena::Arena(std::vector<ArenaSlot> slots, const Share& share, Device device, const OnDisk& on_disk)
    : slots_(std::move(slots)), data_(slots_.size()), device_(device) {
  BlockSizes sizes(slots_);
  std::byte* next[num_memories][num_categories] = {};
  if (const std::vector<ArenaSlot> kept = slots_on_disk(slots_); !kept.empty()) {
    TESSERA_ASSERT(on_disk, "slot %s is on disk, and no memory on disk was named", kept.front().name.c_str());
    disk_ = on_disk(kept);
  }
  std::size_t region = 0;
  for_each_block([&](Memory memory, Category category) {
    if (memory == Memory::disk) return;
    Block& block = blocks_[static_cast<int>(memory)][static_cast<int>(category)];
    if (sizes.of(memory, category) > 0) block = Block(memory, category, device, sizes.of(memory, category));
    next[static_cast<int>(memory)][static_cast<int>(category)] = block.data();
  });
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const auto& slot = slots_[i];
    const bool unique = slot.id.use == SlotUse::none || index_.emplace(slot.id, i).second;
    TESSERA_ASSERT(unique, "two slots are the same one: %s", slot.name.c_str());
    if (slot.memory == Memory::disk) {
      data_[i] = disk_->data(region++);
    } else if (slot.placement == Placement::own) {
      std::byte*& free = next[static_cast<int>(slot.memory)][static_cast<int>(slot.category)];
      data_[i] = free;
      free += round_to_pages(with_canary(slot));
    } else if (slot.placement != Placement::transport) {
      TESSERA_ASSERT(slot.memory == Memory::host, "slot %s is shared, and not in host memory", slot.name.c_str());
      data_[i] = share(slot, with_canary(slot));
    }
    if (has_canary(slot)) fill(i, slot.bytes, canary, canary_bytes);
  }
}

Arena::Block::Block(Memory memory, Category category, Device device, std::size_t bytes)
    : memory_(memory), device_(device) {
  TESSERA_ASSERT(memory != Memory::device || (cuda_built && device.kind == Device::Kind::cuda),
                 "%zu bytes for a device, and none was named", bytes);
  if constexpr (cuda_built)
    if (memory == Memory::device) {
      data_ = cuda::allocate(device, bytes, &device_bytes_);
      return;
    }
  try {
    const char* const kind = memory == Memory::pinned ? " (pinned)" : "";  // distinct: neighbors are not merged
    mapping_ = Mapping::anonymous(bytes, (std::string("tessera ") + name_of(category) + kind).c_str());
  } catch (const Error& error) {
    throw Error(
        error.code(), error.line(), "arena",
        "`tessera plan` shows what takes the memory; lower per_device_train_batch_size or raise the number of ranks");
  }
  data_ = mapping_.data();
  if constexpr (cuda_built)
    if (memory == Memory::pinned && device.kind == Device::Kind::cuda) cuda::pin(device, data_, bytes);
}

Arena::Block::~Block() {
  if constexpr (cuda_built) {
    if (data_ != nullptr && memory_ == Memory::device) cuda::release(device_, data_);
    if (data_ != nullptr && memory_ == Memory::pinned && device_.kind == Device::Kind::cuda) cuda::unpin(data_);
  }
}

Arena::Block::Block(Block&& other) noexcept { *this = std::move(other); }

Arena::Block& Arena::Block::operator=(Block&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(device_, other.device_);
  std::swap(mapping_, other.mapping_);
  std::swap(data_, other.data_);
  std::swap(device_bytes_, other.device_bytes_);
  return *this;
}

std::size_t Arena::Block::measure(const ProcessMaps& maps) const {
  return memory_ == Memory::device ? device_bytes_ : maps.bytes_at(data_);
}

MemoryTable Arena::measure() const {
  const ProcessMaps maps;
  MemoryTable table;
  for_each_block([&](Memory memory, Category category) {
    const Block& block = blocks_[static_cast<int>(memory)][static_cast<int>(category)];
    if (block.data() != nullptr) table.add(memory, category, block.measure(maps));
  });
  for (const ArenaSlot& slot : slots_)
    if (slot.memory == Memory::disk) table.add(slot.memory, slot.category, round_to_pages(slot.bytes));
  for (std::size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].placement == Placement::peers_read || slots_[i].placement == Placement::node)
      table.add(Memory::host, slots_[i].category, part_of(maps.bytes_at(data_[i]), slots_[i].sharers, slots_[i].index));
  return table;
}

void Arena::fill(std::size_t slot, std::size_t at, unsigned char value, std::size_t bytes) {
  if constexpr (cuda_built)
    if (slots_[slot].memory == Memory::device) return fill_now(device_, data_[slot] + at, value, bytes);
  std::memset(data_[slot] + at, value, bytes);
}

const std::byte* Arena::read(std::size_t slot, std::size_t at, std::size_t bytes, std::vector<std::byte>& copy) const {
  if (slots_[slot].memory == Memory::disk) {
    copy.resize(bytes);
    copy_now(disk_device, copy.data(), data_[slot] + at, bytes);
    return copy.data();
  }
  if constexpr (cuda_built)
    if (slots_[slot].memory == Memory::device) {
      copy.resize(bytes);
      copy_now(device_, copy.data(), data_[slot] + at, bytes);
      return copy.data();
    }
  return data_[slot] + at;
}

std::size_t Arena::find(std::string_view name) const {
  const auto found = std::ranges::find(slots_, name, &ArenaSlot::name);
  TESSERA_ASSERT(found != slots_.end(), "no slot %s", std::string(name).c_str());
  return static_cast<std::size_t>(found - slots_.begin());
}

std::byte* Arena::data(std::string_view name) const { return data_[find(name)]; }

std::byte* Arena::data(SlotId id) const {
  const auto found = index_.find(id);
  TESSERA_ASSERT(found != index_.end(), "no slot for use %d of %d, part %d", static_cast<int>(id.use), id.of, id.part);
  return data_[found->second];
}

std::byte* Arena::data_if(SlotId id) const { return memory(id).data(); }

std::span<std::byte> Arena::memory(SlotId id) const {
  const auto found = index_.find(id);
  if (found == index_.end()) return {};
  return {data_[found->second], slots_[found->second].bytes};
}

std::string Arena::broken_canary() const {
  std::vector<std::byte> copy;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!has_canary(slots_[i])) continue;
    const std::byte* const behind = read(i, slots_[i].bytes, canary_bytes, copy);
    for (std::size_t k = 0; k < canary_bytes; ++k)
      if (behind[k] != std::byte{canary}) return slots_[i].name;
  }
  return {};
}

void Arena::fill_with_pattern() {
  for (std::size_t i = 0; i < slots_.size(); ++i)
    if (has_canary(slots_[i]) && slots_[i].category != Category::params && slots_[i].category != Category::optimizer)
      fill(i, 0, paint_pattern, slots_[i].bytes);
}

std::size_t Arena::touched(std::string_view name) const {
  const std::size_t i = find(name);
  std::size_t n = slots_[i].bytes;
  std::vector<std::byte> copy;
  const std::byte* const data = read(i, 0, n, copy);
  while (n > 0 && data[n - 1] == std::byte{paint_pattern}) --n;
  return n;
}

}  // namespace tessera
