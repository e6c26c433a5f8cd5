#pragma once
// An interpreter of schedules that knows nothing of proofs: it runs a list on simulated ranks and streams, keeps a
// generation tag on every buffer, and sees what a real run would see: wrong contents, torn contents, buffers that
// change while they are read. It shares no code with the verifier, which it judges.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/comm/mesh.hpp"
#include "runtime/shard/schedule.hpp"

namespace tessera::test {

/// How an interleaving is chosen among the events (starts and ends of instructions) that could come next.
struct Choice {
  enum class Kind : unsigned char { priority, random };
  Kind kind = Kind::priority;
  std::uint64_t seed = 0;         // random
  shard::StreamId order[3] = {};  // priority: streams that run ahead of the others
  bool ends_first = true;         // priority: instructions end as soon, or as late, as they can
  int held = -1;                  // instruction of rank 0 that is held back while anything else can run
  bool hold_start = false;        // its start, rather than its end
};

/// Runs two steps. Returns what went wrong first, or "".
[[nodiscard]] std::string interpret(const shard::Schedule& schedule, const Mesh& mesh, const Choice& choice);

/// Looks for an interleaving that goes wrong: streams run ahead and held back in every order, every instruction held
/// back in turn (those in `suspects` first), and `num_random` random ones. Returns what went wrong, or "".
[[nodiscard]] std::string find_fault(const shard::Schedule& schedule, const Mesh& mesh,
                                     const std::vector<int>& suspects, int num_random);

}  // namespace tessera::test
