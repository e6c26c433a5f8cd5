// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rate of a plain TCP connection between hosts, to compare collectives with.

#include <cstddef>

#include "runtime/comm/world.hpp"

namespace tessera::comm {

/// Collective. The first rank of each node sends `bytes` over TCP to that of the next node while it receives as many
/// from the one before it, all at once. Bytes per second of the slowest; 0 if there is one node. Throws Error
/// (communication) if a node cannot be reached at any of its IPv4 addresses within ten seconds.
[[nodiscard]] double socket_rate(World& world, std::size_t bytes);

}  // namespace tessera::comm
