#pragma once
// Hub: what the threads of a local world share: mailboxes, shelves, the node_status, and the news that one of them has
// failed.

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/comm/endpoint.hpp"
#include "runtime/comm/shared_memory.hpp"

namespace tessera::comm {

/// Messages of one group: a send and a receive meet here; the second to come copies.
class Mailbox {
 public:
  struct Message {
    int from, to;
    std::uint64_t tag;
    std::byte* data;
    std::size_t bytes;
    int* open;  // of the poster's lane: messages not yet done
  };
  void post_send(const Message& message) { post(message, sends_, receives_, Direction::out); }
  void post_receive(const Message& message) { post(message, receives_, sends_, Direction::in); }
  /// True when *open is 0.
  [[nodiscard]] bool wait(const int& open, double seconds);
  /// Forgets what was posted for the counters in [first, last).
  void drop(const int* first, const int* last);

 private:
  enum class Direction : unsigned char { in, out };
  void post(const Message& message, std::deque<Message>& same, std::deque<Message>& other, Direction direction);
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> sends_, receives_;
};

/// Memory of one group, handed to each member by the order of its requests.
class GroupMemory {
 public:
  ~GroupMemory();
  [[nodiscard]] std::byte* block(std::size_t index, std::size_t bytes);

 private:
  struct Block {
    void* data;
    std::size_t bytes;
  };
  std::mutex mutex_;
  std::vector<Block> blocks_;
};

/// Where threads that call the same splits find each other: the same (split, colour) is the same group.
class Hub {
 public:
  explicit Hub(int world) : statuses_(static_cast<std::size_t>(world)) {}

  struct Group {
    Mailbox mailbox;
    GroupMemory memory;
    std::map<int, int> keys;  // key of each member → its world rank
    int arrived = 0;
  };
  /// Collective over the world: blocks until every thread has said which colour it joins in this split.
  std::shared_ptr<Group> join(int split, int color, int key, int rank);

  /// The first failure of any thread: its exception is what run_local throws, the others are its echoes.
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
