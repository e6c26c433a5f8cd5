// SPDX-License-Identifier: Apache-2.0
#pragma once
// Hub: what the threads of a local world share: mailboxes, memory, the status table, and the first failure.

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/base/mapping.hpp"
#include "runtime/comm/endpoint.hpp"
#include "runtime/comm/shared_memory.hpp"

namespace tessera::comm {

/// Messages of one group. A send and its receive are matched in the receiver's box; the later of the two copies.
class Mailbox {
 public:
  /// A rank's messages that are not yet complete, of one lane. It waits for them.
  struct Open {
    std::mutex mutex;
    std::condition_variable changed;
    int count = 0;
  };
  struct Message {
    int from, to;
    std::uint64_t tag;
    std::byte* data;
    std::size_t bytes;
    Open* open;
  };
  /// Collective in effect: every member says how many there are before it posts.
  void set_size(std::size_t members);
  void post_send(const Message& message) { post(message, Direction::out); }
  void post_receive(const Message& message) { post(message, Direction::in); }
  /// Waits up to `seconds` for open.count == 0; returns whether it is.
  [[nodiscard]] static bool wait(Open& open, double seconds);
  /// Removes messages of `open`.
  void drop(const Open& open);

 private:
  enum class Direction : unsigned char { in, out };
  struct Box {
    std::mutex mutex;
    std::deque<Message> sends, receives;
  };
  void post(const Message& message, Direction direction);
  std::mutex mutex_;
  std::vector<std::unique_ptr<Box>> boxes_;  // of each receiver
};

/// Shared memory of one group: a member's n-th request gives the group's n-th block.
class GroupMemory {
 public:
  [[nodiscard]] std::byte* block(std::size_t index, std::size_t bytes);

 private:
  struct Block {
    Mapping mapping;
    std::size_t bytes;
  };
  std::mutex mutex_;
  std::vector<Block> blocks_;
};

/// Split of the world into groups, as MPI_Comm_split: threads that pass the same (split, color) get the same group.
class Hub {
 public:
  explicit Hub(int world) : statuses_(static_cast<std::size_t>(world)) {}

  struct Group {
    Mailbox mailbox;
    GroupMemory memory;
    std::map<int, int> keys;  // key of a member → its world rank
    int arrived = 0;
  };
  /// Collective over the world: blocks until every thread has joined a group of this split.
  std::shared_ptr<Group> join(int split, int color, int key, int rank);

  /// Keeps the first failure of any thread, which run_local rethrows; the later ones follow from it.
  void fail(int rank, std::exception_ptr error);
  [[nodiscard]] int failed_rank() const { return failed_rank_.load(); }
  [[nodiscard]] std::exception_ptr error() const { return error_; }
  [[nodiscard]] RankStatus* statuses() { return statuses_.data(); }
  [[nodiscard]] NodeStatus* node_status() { return &node_status_; }

 private:
  struct Split {
    std::map<int, std::shared_ptr<Group>> groups;
    int arrived = 0, left = 0;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Split> splits_;
  std::vector<RankStatus> statuses_;
  NodeStatus node_status_{};
  std::atomic<int> failed_rank_{-1};
  std::exception_ptr error_;
};

}  // namespace tessera::comm
