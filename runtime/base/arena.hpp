// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arena: every buffer of a run, in slots, sized before the first step. After construction nothing is allocated.

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/device.hpp"
#include "runtime/base/disk_memory.hpp"
#include "runtime/base/mapping.hpp"
#include "runtime/base/slot_id.hpp"

namespace tessera {

/// Categories of the memory table, in its order.
enum class Category : unsigned char { params, grads, optimizer, activations, buffers, comm };
inline constexpr int num_categories = 6;
[[nodiscard]] const char* name_of(Category category);

/// Who uses a slot, and what its `bytes` are.
enum class Placement : unsigned char {
  own,         // this rank alone
  peers_read,  // written by this rank, read in place by the ranks of its node that share it; `bytes` of each rank
  node,        // one buffer for all ranks that share it; `bytes` are this rank's interval
  transport,   // allocated by a communicator when it is made; `bytes` are what this rank is charged for
};

/// Which memory an own slot lies in.
enum class Memory : unsigned char {
  host,
  pinned,  // page-locked host memory: what is copied to and from the device. Without a device, host memory that stands
           // for it: states that are offloaded
  device,
  disk,  // offloaded states, at addresses that only copies reach (runtime/base/disk_memory.hpp)
};
inline constexpr int num_memories = 4;

struct ArenaSlot {
  SlotId id;         // unique; SlotUse::none: known by its name alone
  std::string name;  // "grad.s0", "saved.h.3", …; unique
  Category category = Category::buffers;
  Placement placement = Placement::own;
  std::size_t bytes = 0;
  Memory memory = Memory::host;  // own slots; the others are in host memory
  // peers_read, node: how many ranks share it, this rank's number among them, and the caller's number of that group
  int sharers = 1, index = 0, group = 0;
  friend bool operator==(const ArenaSlot&, const ArenaSlot&) = default;
};

/// What slots take, in bytes.
struct MemoryTable {
  std::size_t by_category[num_categories] = {};  // without what is on disk
  std::size_t by_memory[num_memories] = {};
  void add(Memory memory, Category category, std::size_t bytes);
  [[nodiscard]] std::size_t total() const;
};
/// What a rank takes for the slots, from their sizes: rounded up to pages (and on a device to device_block_bytes),
/// canaries included.
[[nodiscard]] MemoryTable planned_memory(const std::vector<ArenaSlot>& slots);

/// Owns the slots: one block for each category and memory, each a mapping of its own, so that the system's account of
/// the process shows what each takes. Canary bytes follow every own and every peers_read slot; a write past its end
/// changes them.
class Arena {
 public:
  static constexpr std::size_t alignment = page_bytes;  // of own slots, within their block: for SIMD and O_DIRECT
  static constexpr std::size_t canary_bytes = 64;
  static constexpr std::size_t device_block_bytes = std::size_t{2} << 20;  // smallest allocation on a device

  /// Allocates a slot that peers share: `bytes` for each rank, canary included. Returns the start of this rank's part
  /// (peers_read) or of the whole region (node). Called in slot order, which is the same on every rank.
  using Share = std::function<std::byte*(const ArenaSlot& slot, std::size_t bytes)>;

  /// Makes the memory of the slots on disk: a region each, in this order.
  using OnDisk = std::function<std::unique_ptr<DiskMemory>(const std::vector<ArenaSlot>& slots)>;

  /// Zero-filled. Throws Error (does_not_fit) if the system refuses the memory, and what `on_disk` throws. `device`:
  /// for device and pinned slots.
  Arena(std::vector<ArenaSlot> slots, const Share& share, Device device = host_device, const OnDisk& on_disk = {});
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Start of a slot (node: of the whole region). Asserts that it exists.
  [[nodiscard]] std::byte* data(SlotId id) const;
  /// The same, or null if there is no such slot.
  [[nodiscard]] std::byte* data_if(SlotId id) const;
  /// All bytes of a slot; empty if there is no such slot.
  [[nodiscard]] std::span<std::byte> memory(SlotId id) const;
  /// For tools and tests: of the slot of that name.
  [[nodiscard]] std::byte* data(std::string_view name) const;
  [[nodiscard]] const std::vector<ArenaSlot>& slots() const { return slots_; }
  /// Bytes that the system has given for this rank's slots, without those of communicators: mappings as /proc/self/maps
  /// lists them, shared ones divided by their sharers; of a device, by how much its free memory shrank.
  [[nodiscard]] MemoryTable measure() const;
  /// Name of the first slot whose canary has been overwritten; "" if there is none.
  [[nodiscard]] std::string broken_canary() const;

  /// For tests: fill_with_pattern fills every slot but params and optimizer with a pattern. touched returns how many
  /// bytes of a slot, up to the last changed one, have been written since.
  void fill_with_pattern();
  [[nodiscard]] std::size_t touched(std::string_view name) const;

 private:
  [[nodiscard]] std::size_t find(std::string_view name) const;

  /// A block of one memory and category.
  class Block {
   public:
    Block() = default;
    Block(Memory memory, Category category, Device device, std::size_t bytes);
    ~Block();
    Block(Block&& other) noexcept;
    Block& operator=(Block&& other) noexcept;
    [[nodiscard]] std::byte* data() const { return data_; }
    [[nodiscard]] std::size_t measure(const ProcessMaps& maps) const;

   private:
    Memory memory_ = Memory::host;
    Device device_;
    Mapping mapping_;  // host and pinned
    std::byte* data_ = nullptr;
    std::size_t device_bytes_ = 0;  // by how much the device's free memory shrank
  };
  void fill(std::size_t slot, std::size_t at, unsigned char value, std::size_t bytes);
  /// `bytes` of a slot from `at` on, readable by the host: in place, or copied into `copy`.
  [[nodiscard]] const std::byte* read(std::size_t slot, std::size_t at, std::size_t bytes,
                                      std::vector<std::byte>& copy) const;

  std::vector<ArenaSlot> slots_;
  std::map<SlotId, std::size_t> index_;
  std::vector<std::byte*> data_;
  Device device_;
  Block blocks_[num_memories][num_categories];
  std::unique_ptr<DiskMemory> disk_;  // null: no slot is on disk
};

}  // namespace tessera
