#include "runtime/base/arena.hpp"

#include <sys/mman.h>

#include <cstring>

#include "runtime/base/cuda/memory.hpp"
#include "runtime/base/error.hpp"

namespace tessera {

namespace {
constexpr unsigned char canary = 0xA5, paint_pattern = 0xC3;

bool has_canary(const ArenaSlot& slot) {
  return slot.placement == Placement::own || slot.placement == Placement::peers_read;
}

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }
}  // namespace

const char* name_of(Category category) {
  static constexpr const char* names[] = {"params", "grads", "optimizer", "activations", "buffers", "comm"};
  return names[static_cast<int>(category)];
}

Arena::Arena(std::vector<ArenaSlot> slots, const Share& share, Device device)
    : slots_(std::move(slots)), data_(slots_.size()), device_(device) {
  std::size_t block_bytes[num_memories] = {};
  for (const auto& slot : slots_)
    if (slot.placement == Placement::own)
      block_bytes[static_cast<int>(slot.memory)] += round_up(slot.bytes + canary_bytes, alignment);
  std::byte* next[num_memories] = {};
  for (int m = 0; m < num_memories; ++m) {
    if (block_bytes[m] > 0) blocks_[m] = take(static_cast<Memory>(m), block_bytes[m]);
    next[m] = blocks_[m].get();
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const auto& slot = slots_[i];
    bytes_[static_cast<int>(slot.category)] += slot.bytes;
    if (slot.placement == Placement::own) {
      std::byte*& place = next[static_cast<int>(slot.memory)];
      data_[i] = place;
      place += round_up(slot.bytes + canary_bytes, alignment);
    } else if (slot.placement != Placement::transport) {
      TESSERA_ASSERT(slot.memory == Memory::host, "slot %s is shared, and not the host's", slot.name.c_str());
      data_[i] = share(slot, slot.bytes + (slot.placement == Placement::peers_read ? canary_bytes : 0));
    }
    if (has_canary(slot)) fill(i, slot.bytes, canary, canary_bytes);
  }
}

Arena::Block Arena::take(Memory memory, std::size_t bytes) const {
  TESSERA_ASSERT(memory == Memory::host || (cuda_built && device_.kind == Device::Kind::cuda),
                 "%zu bytes for a device, and none was named", bytes);
  if constexpr (cuda_built) {
    if (memory == Memory::device) return {cuda::allocate(device_, bytes), Release{memory, device_, bytes}};
    if (memory == Memory::pinned) return {cuda::allocate_pinned(device_, bytes), Release{memory, device_, bytes}};
  }
  void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED)
    throw Error(
        ExitCode::does_not_fit, strfmt("cannot allocate %zu bytes for this rank", bytes), "arena",
        "`tessera plan` shows what takes the memory; lower per_device_train_batch_size or raise the number of ranks");
  madvise(block, bytes, MADV_HUGEPAGE);
  return {static_cast<std::byte*>(block), Release{memory, device_, bytes}};
}

void Arena::Release::operator()(std::byte* block) const {
  if constexpr (cuda_built) {
    if (memory == Memory::device) return cuda::release(device, block);
    if (memory == Memory::pinned) return cuda::release_pinned(block);
  }
  munmap(block, bytes);
}

void Arena::fill(std::size_t slot, std::size_t at, unsigned char value, std::size_t bytes) {
  if constexpr (cuda_built)
    if (slots_[slot].memory == Memory::device) return cuda::fill_now(device_, data_[slot] + at, value, bytes);
  std::memset(data_[slot] + at, value, bytes);
}

const std::byte* Arena::read(std::size_t slot, std::size_t at, [[maybe_unused]] std::size_t bytes,
                             [[maybe_unused]] std::vector<std::byte>& copy) const {
  if constexpr (cuda_built)
    if (slots_[slot].memory == Memory::device) {
      copy.resize(bytes);
      cuda::copy_now(device_, copy.data(), data_[slot] + at, bytes);
      return copy.data();
    }
  return data_[slot] + at;
}

std::size_t Arena::find(std::string_view name) const {
  for (std::size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].name == name) return i;
  TESSERA_ASSERT(false, "no slot %s", std::string(name).c_str());
  return 0;
}

std::byte* Arena::data(std::string_view name) const { return data_[find(name)]; }

std::byte* Arena::data_if(std::string_view name) const {
  for (std::size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].name == name) return data_[i];
  return nullptr;
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
