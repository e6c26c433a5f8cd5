#include "runtime/base/arena.hpp"

#include <sys/mman.h>

#include <cstring>

#include "runtime/base/error.hpp"

namespace tessera {

namespace {
constexpr unsigned char canary = 0xA5, paint_pattern = 0xC3;

bool has_canary(const ArenaSlot& slot) { return slot.placement == Placement::own || slot.placement == Placement::peers_read; }

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }
}  // namespace

const char* name_of(Category category) {
  static constexpr const char* names[] = {"params", "grads", "optimizer", "activations", "buffers", "comm"};
  return names[static_cast<int>(category)];
}

Arena::Arena(std::vector<ArenaSlot> slots, const Share& share) : slots_(std::move(slots)), data_(slots_.size()) {
  std::size_t block_bytes = 0;
  for (const auto& slot : slots_)
    if (slot.placement == Placement::own) block_bytes += round_up(slot.bytes + canary_bytes, alignment);
  if (block_bytes > 0) {
    void* memory = mmap(nullptr, block_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      throw Error(ExitCode::does_not_fit, strfmt("cannot allocate %zu bytes for this rank", block_bytes), "arena",
                  "`tessera plan` shows what takes the memory; lower per_device_train_batch_size or raise the number of ranks");
    block_ = {static_cast<std::byte*>(memory), Unmap{block_bytes}};
    madvise(memory, block_bytes, MADV_HUGEPAGE);
  }
  std::byte* next = block_.get();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const auto& slot = slots_[i];
    bytes_[static_cast<int>(slot.category)] += slot.bytes;
    if (slot.placement == Placement::own) {
      data_[i] = next;
      next += round_up(slot.bytes + canary_bytes, alignment);
    } else if (slot.placement != Placement::transport) {
      data_[i] = share(slot, slot.bytes + (slot.placement == Placement::peers_read ? canary_bytes : 0));
    }
    if (has_canary(slot)) std::memset(data_[i] + slot.bytes, canary, canary_bytes);
  }
}

void Arena::Unmap::operator()(std::byte* block) const { munmap(block, bytes); }

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
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!has_canary(slots_[i])) continue;
    for (std::size_t k = 0; k < canary_bytes; ++k)
      if (data_[i][slots_[i].bytes + k] != std::byte{canary}) return slots_[i].name;
  }
  return {};
}

void Arena::paint() {
  for (std::size_t i = 0; i < slots_.size(); ++i)
    if (has_canary(slots_[i]) && slots_[i].category != Category::params && slots_[i].category != Category::optimizer)
      std::memset(data_[i], paint_pattern, slots_[i].bytes);
}

std::size_t Arena::touched(std::string_view name) const {
  const std::size_t i = find(name);
  std::size_t n = slots_[i].bytes;
  while (n > 0 && data_[i][n - 1] == std::byte{paint_pattern}) --n;
  return n;
}

}  // namespace tessera
