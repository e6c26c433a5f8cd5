// SPDX-License-Identifier: Apache-2.0
#pragma once
// Endpoint: point-to-point messages within a group, and the collectives built on them.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/comm/base_communicator.hpp"
#include "runtime/comm/message_count.hpp"

namespace tessera::comm {

/// Point-to-point messages. send and receive post a message on a lane and return; wait waits for all messages of a
/// lane. Messages between two ranks with one tag arrive in order. Used by one thread at a time.
class Endpoint {
 public:
  static constexpr int num_lanes = 2;
  virtual ~Endpoint() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  void send(int lane, int to, const void* data, std::size_t bytes, std::uint64_t tag) {
    ++count_.messages;
    count_.bytes += bytes;
    start_send(lane, to, data, bytes, tag);
  }
  virtual void receive(int lane, int from, void* data, std::size_t bytes, std::uint64_t tag) = 0;
  /// True once all messages of the lane are complete; false after about `seconds`. Backs off and sleeps, never spins.
  [[nodiscard]] virtual bool wait(int lane, double seconds) = 0;
  /// The run has failed: forgets all posted messages, whose buffers may be freed.
  virtual void abandon() {}

  void count_round() { ++count_.rounds; }
  [[nodiscard]] const MessageCount& count() const { return count_; }

 protected:
  virtual void start_send(int lane, int to, const void* data, std::size_t bytes, std::uint64_t tag) = 0;

 private:
  MessageCount count_;
};

/// Waits for a lane, and polls the watchdog.
void finish(Endpoint& endpoint, int lane, BaseCommunicator& communicator);

/// Dissemination barrier: ceil(log2 size) rounds of empty messages.
void barrier(Endpoint& endpoint, BaseCommunicator& communicator, std::uint64_t tag);

/// Binomial tree from endpoint rank `root`. `leaders`: the endpoint connects the first members of these nodes; null:
/// all members.
void broadcast(Endpoint& endpoint, BaseCommunicator& communicator, std::span<std::byte> bytes, int root,
               std::uint64_t tag, const std::vector<NodeMembers>* leaders);

/// The communicator of transport mpi (and of local with copies): all data moves by messages. `endpoint` may be null if
/// the group has one member. Of S members, one sends
///   reduce_scatter   along reduction_tree.hpp: 7 messages in each of ceil(log8 S) rounds, for each slice; members of
///                    an incomplete last block send more
///   all_gather       to all others at once; beyond 8 members in ceil(log2 S) rounds (Bruck), one or two messages in
///                    each
///   counters         to all others at once; beyond 8 members by recursive doubling: log2 S messages, and two more
///                    rounds where S is no power of two
///   all_to_all       to all others, 8 at a time: every pair has data of its own
/// broadcast is a binomial tree, barrier a dissemination.
[[nodiscard]] std::unique_ptr<Communicator> message_communicator(CommunicatorInfo info,
                                                                 std::unique_ptr<Endpoint> endpoint);
/// Collective over a message_communicator: `count` bytes of member `from` arrive at member 0; the other members only
/// record the call.
void send_to_root(Communicator& message_communicator, std::byte* data, std::size_t count, int from);

}  // namespace tessera::comm
