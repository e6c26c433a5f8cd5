// SPDX-License-Identifier: Apache-2.0
#pragma once
// Messages that a rank has sent, as counted where they are sent.

#include <cstdint>

namespace tessera {

class Communicator;
class World;

namespace comm {

/// What an endpoint has sent, and how often its rank has waited for messages.
struct MessageCount {
  std::uint64_t messages = 0, bytes = 0, rounds = 0;
  friend bool operator==(const MessageCount&, const MessageCount&) = default;
  friend MessageCount operator-(const MessageCount& a, const MessageCount& b) {
    return {a.messages - b.messages, a.bytes - b.bytes, a.rounds - b.rounds};
  }
};

/// Of this rank through a communicator that World::communicator made. Zeros where nothing goes by messages: ranks that
/// share memory, NCCL, device memory.
[[nodiscard]] MessageCount message_count(const Communicator& communicator);
/// Of this rank for the small collectives of the world: sum, max, broadcast, gather, barrier, and what consists of
/// them.
[[nodiscard]] MessageCount message_count(const World& world);

}  // namespace comm

}  // namespace tessera
