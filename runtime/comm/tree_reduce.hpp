// SPDX-License-Identifier: Apache-2.0
#pragma once
// The reduce-scatter of the message communicator, along reduction_tree.hpp.

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/comm/endpoint.hpp"
#include "runtime/comm/reduction_tree.hpp"

namespace tessera::comm {

class TreeReduce {
 public:
  /// Member `rank` of `size` >= 2.
  TreeReduce(int size, int rank);

  /// mine[k] = sum over members of full[rank·chunk + k], in slices that fit the staging: while the higher levels of one
  /// slice are exchanged and added, the lowest level of the next, seven eighths of the bytes, is in flight.
  void run(Endpoint& endpoint, BaseCommunicator& communicator, SourceBuffer full, float* mine, std::size_t chunk,
           std::span<std::byte> staging);

 private:
  /// Where a level's data lie: offsets in slots, each a slice of one chunk.
  struct Level {
    TreeLevel tree;
    std::vector<std::size_t> sends, receives;  // of each message
    std::vector<std::size_t> own, sums;        // of each chunk held afterwards: this member's term and the sum
  };
  struct Slice {
    std::size_t first = 0, count = 0;  // elements of each chunk
    std::byte* scratch = nullptr;
    int lane = 0;
  };
  /// What a call is about.
  struct Call {
    Endpoint& endpoint;
    BaseCommunicator& communicator;
    SourceBuffer full;
    float* mine;
    std::size_t chunk, slot_bytes;
  };
  void lay_out();
  void post(const Call& call, const Slice& slice, std::size_t k);
  void add(const Call& call, const Slice& slice, std::size_t k);
  [[nodiscard]] const void* outgoing(const Call& call, const Slice& slice, std::size_t k, std::size_t message) const;
  [[nodiscard]] static std::byte* slot(const Call& call, const Slice& slice, std::size_t offset);

  int size_;
  std::vector<Level> levels_;
  std::size_t slots_, most_slots_;  // of this member; the most of a member of the group
  std::vector<const void*> parts_;
};

}  // namespace tessera::comm
