#pragma once
// NodeGroup: the members of a communicator that sit on one node: where they barrier, what they publish to each other,
// their scratch.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/comm/base_communicator.hpp"
#include "runtime/comm/shared_memory.hpp"

namespace tessera::comm {

/// Bytes in a region of shared memory, as a peer can find them; region -1: not shared.
struct SharedAddress {
  std::int64_t region = -1, offset = 0;
  explicit operator bool() const { return region >= 0; }
  friend bool operator==(const SharedAddress&, const SharedAddress&) = default;
};

class NodeGroup {
 public:
  /// Collective. `scratch` bytes per member.
  NodeGroup(std::shared_ptr<SharedMemory> memory, std::size_t scratch);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  /// All members' scratch, one behind the other.
  [[nodiscard]] std::span<std::byte> scratch() const {
    return {scratch_, scratch_bytes_ * static_cast<std::size_t>(size_)};
  }
  [[nodiscard]] std::byte* scratch(int member) const {
    return scratch_ + scratch_bytes_ * static_cast<std::size_t>(member);
  }
  [[nodiscard]] std::size_t scratch_bytes() const { return scratch_bytes_; }

  /// Everybody's writes before are seen by everybody after. Sleeps on a futex; checks that all members are at the same
  /// place
  /// (`phase`) of the same collective, and throws Error (communication) naming the difference if not.
  void barrier(BaseCommunicator& communicator, std::uint64_t phase);

  /// Shows the others where this rank's source and target lie; read after the next barrier(), stable until the
  /// meeting after the next publish.
  void publish(SharedAddress from, SharedAddress to);
  [[nodiscard]] SharedAddress from(int member) const;
  [[nodiscard]] SharedAddress to(int member) const;

 private:
  struct BarrierState;
  struct Member;
  void sleep_until_next(BaseCommunicator& communicator, std::uint32_t generation);

  std::shared_ptr<SharedMemory> memory_;
  int rank_, size_, turn_ = 0;
  std::size_t scratch_bytes_;
  BarrierState* barrier_;
  Member* members_;
  std::byte* scratch_;
};

}  // namespace tessera::comm
