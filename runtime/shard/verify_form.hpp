// SPDX-License-Identifier: Apache-2.0
#pragma once
// The checks of the verifier that need no vector clocks: indices, streams, the order of forward, recompute and
// backward, and the axes of units and exchanges.

#include <vector>

#include "runtime/shard/verify.hpp"

namespace tessera::shard {

/// An index out of range, an instruction on the wrong stream, a dependency on a later instruction, modules out of
/// order; units and exchanges that do not fit the mesh. The other checks assume that there are none.
[[nodiscard]] std::vector<Violation> verify_form(const Schedule& schedule, const Mesh& mesh);

}  // namespace tessera::shard
