#pragma once
// The communicators that use a node's shared memory: all members on one node, or two levels across nodes.

#include <memory>

#include "runtime/comm/endpoint.hpp"
#include "runtime/comm/node/group.hpp"

namespace tessera::comm {

/// Whether share() gives memory out: only where every group of the axis sits on one node.
enum class Sharing : unsigned char { in_place, copies };

/// All members on one node. `shelf` serves the scratch and share().
[[nodiscard]] std::unique_ptr<Communicator> node_communicator(CommunicatorInfo info,
                                                              std::shared_ptr<SharedMemory> memory, Sharing sharing);

/// Members on several nodes, some of them together. `leaders` joins the first members of the runs (null on the others).
[[nodiscard]] std::unique_ptr<Communicator> two_level_communicator(CommunicatorInfo info,
                                                                   std::shared_ptr<SharedMemory> memory,
                                                                   std::unique_ptr<Endpoint> leaders);

}  // namespace tessera::comm
