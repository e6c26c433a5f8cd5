#pragma once
// The part of the verifier that needs no clocks: indices, streams, and the order of forward, recompute and backward.

#include <vector>

#include "runtime/shard/verify.hpp"

namespace tessera::shard {

/// Violations of form: an index out of range, an instruction on the wrong stream, a dependency that does not point to
/// an earlier instruction, modules out of order. The rest of the verifier takes a list without them.
[[nodiscard]] std::vector<Violation> verify_form(const Schedule& schedule);

}  // namespace tessera::shard
