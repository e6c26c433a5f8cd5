// SPDX-License-Identifier: Apache-2.0
#pragma once
// Since when a rank waits in a collective that was enqueued on a device's stream.

#include <chrono>
#include <cstdint>

namespace tessera::comm {

/// The oldest collective that has not ended.
struct OldestCollective {
  std::uint64_t sequence = 0;  // 0: there is none
  bool reached = false;        // its stream has reached it: what was enqueued before it has run
};

/// A collective waits for its peers from when its stream reaches it, not from when the host enqueues it, which may be a
/// whole step earlier. One thread.
class CollectiveClock {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit CollectiveClock(Time now) : since_(now) {}

  /// Called several times a second; returns since when the oldest collective waits: `now`, if it does not.
  Time waiting_since(Time now, OldestCollective oldest) {
    if (oldest.sequence == 0 || !oldest.reached || oldest.sequence != sequence_) since_ = now;
    sequence_ = oldest.reached ? oldest.sequence : 0;
    return since_;
  }

 private:
  Time since_;
  std::uint64_t sequence_ = 0;  // of the collective that waits since then
};

}  // namespace tessera::comm
