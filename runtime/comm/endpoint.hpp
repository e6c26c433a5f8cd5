#pragma once
// Endpoint: messages between the members of a group, posted and waited for; and the collectives that messages make.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/comm/base_communicator.hpp"

namespace tessera::comm {

/// Point-to-point messages. Posted ones belong to a lane; a lane is waited for as a whole. Messages between two ranks
/// with one tag arrive in the order they were sent. Used by one thread at a time.
class Endpoint {
 public:
  static constexpr int num_lanes = 2;
  virtual ~Endpoint() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  virtual void send(int lane, int to, const void* data, std::size_t bytes, std::uint64_t tag) = 0;
  virtual void receive(int lane, int from, void* data, std::size_t bytes, std::uint64_t tag) = 0;
  /// True once everything posted on the lane is done; false after about `seconds`. Backs off and sleeps, never spins.
  [[nodiscard]] virtual bool wait(int lane, double seconds) = 0;
  /// The run has failed: nobody may touch what was posted here any more.
  virtual void abandon() {}
};

/// Waits for a lane under the communicator's watchdog.
void finish(Endpoint& endpoint, int lane, BaseCommunicator& communicator);

/// Nobody leaves before everybody has come: ceil(log2 size) rounds of empty messages.
void barrier(Endpoint& endpoint, BaseCommunicator& communicator, std::uint64_t tag);

/// Binomial tree from endpoint rank `root`. `leaders`: the endpoint joins the first members of these node_members
/// (null: all members).
void broadcast(Endpoint& endpoint, BaseCommunicator& communicator, std::span<std::byte> bytes, int root,
               std::uint64_t tag, const std::vector<NodeMembers>* leaders);

/// The communicator that moves every byte by messages: transport mpi, and local with copies. `endpoint` may be null for
/// one member.
[[nodiscard]] std::unique_ptr<Communicator> message_communicator(CommunicatorInfo info,
                                                                 std::unique_ptr<Endpoint> endpoint);
/// Of a endpoint communicator, collective: `count` bytes of member `from` arrive at member 0; the others only take
/// note.
void send_to_root(Communicator& message_communicator, std::byte* data, std::size_t count, int from);

}  // namespace tessera::comm
