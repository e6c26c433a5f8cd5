#pragma once
// Happens-before over ranks and streams, by vector clocks over a schedule that every rank runs. Knows streams,
// dependencies and collectives, no buffers.

#include <array>
#include <cstddef>
#include <vector>

#include "runtime/comm/mesh.hpp"
#include "runtime/shard/schedule.hpp"

namespace tessera::shard {

/// A rank relative to another: bit 0, it differs along the shard axis; bit 1, along the replicate axis. Every rank runs
/// the same list, so two ranks of each axis stand for all, and what a rank knows of its peer, the peer knows of it.
enum class Peer : unsigned char { self = 0, shard = 1, replicate = 2, both = 3 };

/// Several steps, one after another. Within a rank a step ends before the next begins; ranks do not wait for each other
/// between steps. Event e is instruction e % list.size() of step e / list.size(). Dependencies must point to earlier
/// instructions.
class HappensBefore {
 public:
  HappensBefore(const Schedule& schedule, const Mesh& mesh, int steps);

  /// True if event `first` has ended on `peer` before event `second` starts here, however the streams run.
  [[nodiscard]] bool before(int first, Peer peer, int second) const {
    return start_[static_cast<std::size_t>(second)][slot(peer, stream_of(first))] >=
           position_[static_cast<std::size_t>(first)];
  }

 private:
  static constexpr std::size_t num_peers = 4;
  using Clock = std::array<int, num_peers * num_streams>;  // events known to have ended, by peer and stream

  static std::size_t slot(Peer peer, std::size_t stream) {
    return static_cast<std::size_t>(peer) * num_streams + stream;
  }
  [[nodiscard]] std::size_t stream_of(int event) const {
    return static_cast<std::size_t>(schedule_.list[static_cast<std::size_t>(event) % schedule_.list.size()].stream);
  }
  static void join(Clock& into, const Clock& other, Peer seen_from);

  const Schedule& schedule_;
  std::vector<Clock> start_;   // by event
  std::vector<int> position_;  // by event: its ordinal on its stream, from 1
};

}  // namespace tessera::shard
