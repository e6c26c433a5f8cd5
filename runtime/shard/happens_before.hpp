// SPDX-License-Identifier: Apache-2.0
#pragma once
// Happens-before over ranks and streams, by vector clocks over a schedule that every rank runs. Knows streams,
// dependencies and collectives, no buffers.

#include <cstddef>
#include <vector>

#include "runtime/comm/mesh.hpp"
#include "runtime/shard/schedule.hpp"

namespace tessera::shard {

/// A rank relative to another: a bit for each axis of the mesh with more than one rank, set if they differ along it.
/// Every rank runs the same list, so two ranks of each axis stand for all, and what a rank knows of its peer, the peer
/// knows of it.
using Peer = unsigned;
inline constexpr Peer self = 0;

/// Several steps, one after another. Within a rank a step ends before the next begins; ranks do not wait for each other
/// between steps. Event e is instruction e % list.size() of step e / list.size(). Dependencies must point to earlier
/// instructions.
class HappensBefore {
 public:
  HappensBefore(const Schedule& schedule, const Mesh& mesh, int steps);

  /// True if event `first` has ended on `peer` before event `second` starts here, however the streams run.
  [[nodiscard]] bool before(int first, Peer peer, int second) const {
    return start_[static_cast<std::size_t>(second) * clock_size_ + slot(peer, stream_of(first))] >=
           position_[static_cast<std::size_t>(first)];
  }
  /// The peers in this rank's group along `axes`, without itself.
  [[nodiscard]] std::vector<Peer> peers(AxisSet axes) const;

 private:
  using Clock = std::vector<int>;  // events known to have ended, by peer and stream

  static std::size_t slot(Peer peer, std::size_t stream) {
    return static_cast<std::size_t>(peer) * num_streams + stream;
  }
  [[nodiscard]] std::size_t stream_of(int event) const {
    return static_cast<std::size_t>(schedule_.list[static_cast<std::size_t>(event) % schedule_.list.size()].stream);
  }
  [[nodiscard]] std::vector<Peer> members(const Instruction& instruction) const;
  void join(int* into, const int* other, Peer seen_from) const;

  const Schedule& schedule_;
  std::vector<Axis> axes_;  // with more than one rank; by bit of Peer
  std::size_t clock_size_ = 0;
  std::vector<int> start_;     // by event: its clock
  std::vector<int> position_;  // by event: its ordinal on its stream, from 1
};

}  // namespace tessera::shard
