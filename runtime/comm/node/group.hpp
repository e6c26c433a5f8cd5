// SPDX-License-Identifier: Apache-2.0
#pragma once
// NodeGroup: the members of a communicator on one node: barrier, published buffer addresses, shared scratch.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/comm/base_communicator.hpp"
#include "runtime/comm/shared_memory.hpp"

namespace tessera::comm {

/// An address in a shared region that every member can resolve; region -1: not in shared memory.
struct SharedAddress {
  std::int64_t region = -1, offset = 0;
  explicit operator bool() const { return region >= 0; }
  friend bool operator==(const SharedAddress&, const SharedAddress&) = default;
};

class NodeGroup {
 public:
  /// Collective. `scratch`: bytes per member.
  NodeGroup(std::shared_ptr<SharedMemory> memory, std::size_t scratch);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  /// The scratch of all members, contiguous.
  [[nodiscard]] std::span<std::byte> scratch() const {
    return {scratch_, scratch_bytes_ * static_cast<std::size_t>(size_)};
  }
  [[nodiscard]] std::byte* scratch(int member) const {
    return scratch_ + scratch_bytes_ * static_cast<std::size_t>(member);
  }
  [[nodiscard]] std::size_t scratch_bytes() const { return scratch_bytes_; }
  /// What the system has mapped for the group, as charged to this member.
  [[nodiscard]] std::size_t measured_bytes() const;

  /// Barrier with release/acquire semantics. Sleeps on a futex. Checks that all members are in the same phase of the
  /// same collective, else throws Error (communication) that names the difference.
  void barrier(BaseCommunicator& communicator, std::uint64_t phase);

  /// Publishes the addresses of this rank's source and target. Peers read them after the next barrier(); they stay
  /// valid until the barrier() after the next publish().
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
