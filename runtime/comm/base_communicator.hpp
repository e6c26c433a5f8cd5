#pragma once
// What every transport's communicator shares: its place on the axis, the record of what it issues, its count of bytes.

#include <exception>
#include <vector>

#include "runtime/comm/communicator.hpp"
#include "runtime/comm/node_members.hpp"
#include "runtime/comm/watchdog.hpp"

namespace tessera::comm {

/// Where a communicator stands.
struct CommunicatorInfo {
  int index = 1;                          // of the communicator, for the record
  int rank = 0;                           // coordinate along the axis
  std::vector<int> members;               // world ranks, ascending
  std::vector<NodeMembers> node_members;  // cut by node
  Watchdog* watchdog = nullptr;           // outlives the communicator
};

/// When a collective has ended: when its call returns, or later, which the transport says by completed().
enum class Completion : unsigned char { on_return, later };

class BaseCommunicator : public Communicator {
 public:
  explicit BaseCommunicator(CommunicatorInfo info, Completion completion = Completion::on_return);

  [[nodiscard]] int rank() const final { return info_.rank; }
  [[nodiscard]] int size() const final { return static_cast<int>(info_.members.size()); }
  [[nodiscard]] TrafficCount traffic() const final { return traffic_; }

  void all_gather(CollectiveLabel label, const std::byte* mine, std::byte* full, std::size_t chunk_bytes) final;
  void reduce_scatter(CollectiveLabel label, SourceBuffer full, float* mine, std::size_t chunk) final;
  void all_reduce(CollectiveLabel label, SourceBuffer terms, float* sums, std::size_t count) final;
  using Communicator::all_reduce;

  /// For waits: throws when the run has failed or the wait has lasted too long.
  void poll() const { info_.watchdog->poll(waiting_); }
  /// A wait begins: what came before was progress.
  void progress() { waiting_.since = Watchdog::Clock::now(); }
  /// Of the collective being issued: operation, unit, micro, bytes and place in the sequence.
  [[nodiscard]] std::uint64_t tag() const { return tag_; }
  [[noreturn]] void mismatch() const { info_.watchdog->mismatch(); }
  /// Counts payload handed to member `to`.
  void count_sent(int to, std::size_t bytes);
  void count_within(std::size_t bytes) { traffic_.within_node += bytes; }
  void count_across(std::size_t bytes) { traffic_.across_nodes += bytes; }

 protected:
  /// A collective from entry to exit, in the record. An exception leaves it open: the rank is still in it for the
  /// watchdog.
  class Issue {
   public:
    Issue(BaseCommunicator& communicator, const CollectiveLabel& label, std::size_t bytes);
    ~Issue();
    Issue(const Issue&) = delete;
    Issue& operator=(const Issue&) = delete;

   private:
    BaseCommunicator& communicator_;
    int exceptions_;
  };

  // What a transport does inside an issue; all_reduce is the second, then the first.
  virtual void gather(const std::byte* mine, std::byte* full, std::size_t chunk_bytes) = 0;
  virtual void reduce(SourceBuffer full, float* mine, std::size_t chunk) = 0;

  /// Number of collectives issued so far; the one being issued included.
  [[nodiscard]] std::uint64_t issued() const { return issued_; }
  /// Completion::later: all up to this one have ended. Any thread.
  void completed(std::uint64_t sequence) { record_->left.store(sequence, std::memory_order_release); }

  [[nodiscard]] const CommunicatorInfo& info() const { return info_; }
  [[nodiscard]] const NodeMembers& here() const { return info_.node_members[node_]; }
  [[nodiscard]] std::size_t node() const { return node_; }

 private:
  CommunicatorInfo info_;
  Completion completion_;
  std::size_t node_;
  Record* record_;
  TrafficCount traffic_;
  Waiting waiting_;
  std::uint64_t tag_ = 0, issued_ = 0;
};

}  // namespace tessera::comm
