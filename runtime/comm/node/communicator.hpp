// SPDX-License-Identifier: Apache-2.0
#pragma once
// Communicators over a node's shared memory: all members on one node, or two-level across nodes.

#include <memory>

#include "runtime/comm/endpoint.hpp"
#include "runtime/comm/node/group.hpp"

namespace tessera::comm {

/// Whether share() gives memory: only if every group of the axis is on one node.
enum class Sharing : unsigned char { in_place, copies };

/// All members on one node. `memory` is for the scratch and for share().
[[nodiscard]] std::unique_ptr<Communicator> node_communicator(CommunicatorInfo info,
                                                              std::shared_ptr<SharedMemory> memory, Sharing sharing);

/// Members on several nodes. `leaders` connects the first member of each node; null on the others.
[[nodiscard]] std::unique_ptr<Communicator> two_level_communicator(CommunicatorInfo info,
                                                                   std::shared_ptr<SharedMemory> memory,
                                                                   std::unique_ptr<Endpoint> leaders);

}  // namespace tessera::comm
