#pragma once
// Arena: every buffer of a run, in named slots, sized before the first step. After construction nothing is allocated.

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/device.hpp"

namespace tessera {

/// Categories of the memory table, in its order.
enum class Category : unsigned char { params, grads, optimizer, activations, buffers, comm };
inline constexpr int num_categories = 6;
[[nodiscard]] const char* name_of(Category category);

/// How a slot is allocated, and what its `bytes` count.
enum class Placement : unsigned char {
  own,         // private to this rank
  peers_read,  // this rank's, in shared memory that the ranks of its node read
  node,        // one buffer for all ranks of the group on the node; bytes are this rank's part
  transport,   // allocated by a communicator or library for itself; counted here, not handed out
};

/// Memory that a private slot is in.
enum class Memory : unsigned char {
  host,
  pinned,  // page-locked host memory, for copies to and from the device
  device,  // memory of the run's device
};
inline constexpr int num_memories = 3;

/// A named slot. `bytes`: what this rank is charged for it.
struct ArenaSlot {
  std::string name;  // "grad.s0", "saved.h.3", …; unique
  Category category = Category::buffers;
  Placement placement = Placement::own;
  std::size_t bytes = 0;
  Memory memory = Memory::host;  // own slots
  friend bool operator==(const ArenaSlot&, const ArenaSlot&) = default;
};

/// Owns the slots, in one block per memory. Canary bytes follow every private slot and every peers_read slot; a write
/// past the end of a slot breaks them.
class Arena {
 public:
  static constexpr std::size_t alignment =
      4096;  // of every own slot: SIMD, O_DIRECT; on a device 256, as it aligns its blocks
  static constexpr std::size_t canary_bytes = 64;

  /// Allocates a slot that peers share: `bytes` for each rank, canary included. Returns the start of this rank's part
  /// (peers_read) or of the whole region (node). Called in slot order, which is the same on every rank.
  using Share = std::function<std::byte*(const ArenaSlot& slot, std::size_t bytes)>;

  /// Zero-filled. Throws Error (does_not_fit) if the system refuses the memory. `device`: for device and pinned slots.
  Arena(std::vector<ArenaSlot> slots, const Share& share, Device device = host_device);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Start of a slot (node: of the whole region). Asserts that it exists.
  [[nodiscard]] std::byte* data(std::string_view name) const;
  /// The same, or null if there is no slot of that name.
  [[nodiscard]] std::byte* data_if(std::string_view name) const;
  [[nodiscard]] const std::vector<ArenaSlot>& slots() const { return slots_; }
  /// Bytes allocated for this rank, by category.
  [[nodiscard]] const std::size_t* bytes() const { return bytes_; }
  /// Name of the first slot whose canary is broken; "" if none is.
  [[nodiscard]] std::string broken_canary() const;

  /// For tests: fill_with_pattern fills every slot but params and optimizer with a pattern. touched returns how many
  /// bytes of a slot, up to the last changed one, have been written since.
  void fill_with_pattern();
  [[nodiscard]] std::size_t touched(std::string_view name) const;

 private:
  [[nodiscard]] std::size_t find(std::string_view name) const;

  std::vector<ArenaSlot> slots_;
  std::vector<std::byte*> data_;
  std::size_t bytes_[num_categories] = {};
  Device device_;
  struct Release {
    Memory memory;
    Device device;
    std::size_t bytes;
    void operator()(std::byte* block) const;
  };
  using Block = std::unique_ptr<std::byte, Release>;
  [[nodiscard]] Block take(Memory memory, std::size_t bytes) const;
  void fill(std::size_t slot, std::size_t at, unsigned char value, std::size_t bytes);
  /// `bytes` of a slot from `at` on, readable by the host: in place, or copied into `copy`.
  [[nodiscard]] const std::byte* read(std::size_t slot, std::size_t at, std::size_t bytes,
                                      std::vector<std::byte>& copy) const;
  Block blocks_[num_memories];
};

}  // namespace tessera
