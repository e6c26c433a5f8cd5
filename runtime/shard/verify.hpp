#pragma once
// The verifier: proves of a schedule, before it runs, that it is safe on every interleaving that its dependencies
// allow.

#include <string>
#include <vector>

#include "runtime/comm/mesh.hpp"
#include "runtime/shard/schedule.hpp"

namespace tessera::shard {

struct Violation {
  int instruction = -1;  // index in the list
  std::string what;      // "backward h.2 m0 reads unit h.2, whose gather is not ordered before it"
};

/// Happens-before over the product of the rank schedules (two ranks of each axis suffice: the list is the same on all),
/// two steps unrolled. Proves:
/// - every use of a unit is ordered after a gather (or residency) of its current version, and before the release or the
/// next
///   writer of its slot; in place, peers are readers too: an update of my interval is ordered after every peer's reads;
/// - no slot has two units at once; no writer of a slot is unordered against a reader or writer of it (gradients: the
/// reduce
///   that reads, on this rank and on peers that read it in place, until the reduce completes);
/// - every gradient contribution of a micro-batch is ordered before its reduce, none comes after; the folds cover each
///   micro-batch exactly once; update after norm after every reduce;
/// - where parameters are fixed, what is resident was gathered before the first run (build_load), and nothing is
/// updated;
/// - dependencies point to earlier instructions, collectives come in one order on every rank.
/// Empty: safe.
[[nodiscard]] std::vector<Violation> verify(const Schedule& schedule, const Mesh& mesh);

/// Throws std::logic_error with the first violations if there are any.
void require_safe(const Schedule& schedule, const Mesh& mesh);

/// Most gathered-parameter and gradient slots alive at once, in elements of `unit_numel` (a slot is as large as the
/// largest unit that uses it); for the planner and tests. A parameter slot lives from its gather to its release, in
/// list order, or for the run if it is resident; a gradient slot from its first use to the end, since the reduce that
/// reads it may lag.
struct Peak {
  std::int64_t params = 0, grads = 0;
};
[[nodiscard]] Peak peak(const Schedule& schedule, const std::vector<std::int64_t>& unit_numel);

}  // namespace tessera::shard
