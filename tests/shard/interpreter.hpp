// SPDX-License-Identifier: Apache-2.0
#pragma once
// An interpreter of schedules: runs a list on simulated ranks and streams, with a generation tag on every buffer, and
// detects what would go wrong in a real run: wrong contents, partly written contents, buffers that change while they
// are read. It shares no code with the verifier that it tests.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/comm/mesh.hpp"
#include "runtime/shard/schedule.hpp"

namespace tessera::test {

/// How to choose among the events (starts and ends of instructions) that can come next.
struct Choice {
  enum class Kind : unsigned char { priority, random };
  Kind kind = Kind::priority;
  std::uint64_t seed = 0;                          // random
  shard::StreamId order[shard::num_streams] = {};  // priority: streams that run ahead of the others
  bool ends_first = true;                          // priority: instructions end as early, or as late, as possible
  int held = -1;                                   // instruction of rank 0 that is delayed as long as possible
  bool hold_start = false;                         // delays its start instead of its end
  /// Every rank starts the instructions in list order, over all streams, as on a device whose streams share one
  /// hardware queue. So the list is a launch order of all communicators in which no rank waits for another in a circle.
  bool one_queue = false;
};

/// Runs two steps, after the gathers of `load` (null: none). Returns the first error, or "".
[[nodiscard]] std::string interpret(const shard::Schedule& schedule, const Mesh& mesh, const Choice& choice,
                                    const shard::Schedule* load = nullptr);

/// Searches for an interleaving with an error: every order of priority of the streams, every instruction delayed (those
/// in `suspects` first), and `num_random` random ones. Returns the error, or "".
[[nodiscard]] std::string find_fault(const shard::Schedule& schedule, const Mesh& mesh,
                                     const std::vector<int>& suspects, int num_random,
                                     const shard::Schedule* load = nullptr);

}  // namespace tessera::test
