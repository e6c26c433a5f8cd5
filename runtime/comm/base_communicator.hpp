// SPDX-License-Identifier: Apache-2.0
#pragma once
// BaseCommunicator: what the communicators of all transports have in common: members, record for the watchdog, traffic
// counts.

#include <vector>

#include "runtime/comm/communicator.hpp"
#include "runtime/comm/message_count.hpp"
#include "runtime/comm/node_members.hpp"
#include "runtime/comm/watchdog.hpp"

namespace tessera::comm {

/// The members of a communicator, and this rank among them.
struct CommunicatorInfo {
  int index = 1;                          // number of the communicator, for the watchdog
  int rank = 0;                           // coordinate along the axis
  std::vector<int> members;               // world ranks, ascending
  std::vector<NodeMembers> node_members;  // the same members, grouped by node
  Watchdog* watchdog = nullptr;           // outlives the communicator
};

/// When a collective is complete: when its call returns, or later, when the transport calls completed().
enum class Completion : unsigned char { on_return, later };

class BaseCommunicator : public Communicator {
 public:
  explicit BaseCommunicator(CommunicatorInfo info, Completion completion = Completion::on_return);
  ~BaseCommunicator() override { record_->released.store(1); }
  BaseCommunicator(const BaseCommunicator&) = delete;
  BaseCommunicator& operator=(const BaseCommunicator&) = delete;

  [[nodiscard]] int rank() const final { return info_.rank; }
  [[nodiscard]] int size() const final { return static_cast<int>(info_.members.size()); }
  [[nodiscard]] TrafficCount traffic() const final { return traffic_; }
  /// What its endpoint has sent; zeros without one.
  [[nodiscard]] virtual MessageCount messages() const { return {}; }

  void all_gather(CollectiveLabel label, const std::byte* mine, std::byte* full, std::size_t chunk_bytes) final;
  void all_to_all(CollectiveLabel label, const std::byte* parts, std::byte* received, std::size_t chunk_bytes) final;
  void reduce_scatter(CollectiveLabel label, SourceBuffer full, float* mine, std::size_t chunk) final;
  void all_reduce(CollectiveLabel label, SourceBuffer source, float* sums, std::size_t count) final;
  using Communicator::all_reduce;

  /// Called while waiting: throws when the run has failed or the wait is longer than the timeout.
  void poll() const { info_.watchdog->poll(waiting_); }
  /// Restarts the clock of the wait.
  void progress() { waiting_.since = Watchdog::Clock::now(); }
  /// Hash of the current collective: operation, unit, micro-batch, bytes and sequence number. Equal on all members.
  [[nodiscard]] std::uint64_t tag() const { return tag_; }
  [[noreturn]] void mismatch() const { info_.watchdog->mismatch(); }
  /// Counts bytes sent to member `to`.
  void count_sent(int to, std::size_t bytes);
  void count_within(std::size_t bytes) { traffic_.within_node += bytes; }
  void count_across(std::size_t bytes) { traffic_.across_nodes += bytes; }

 protected:
  /// Records a collective from its start to its end. An exception leaves it open, so that the watchdog still sees this
  /// rank in it.
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

  // The transport's part of a collective. all_reduce is reduce, then gather.
  virtual void gather(const std::byte* mine, std::byte* full, std::size_t chunk_bytes) = 0;
  virtual void exchange(const std::byte* parts, std::byte* received, std::size_t chunk_bytes) = 0;
  virtual void reduce(SourceBuffer full, float* mine, std::size_t chunk) = 0;

  /// Number of collectives issued so far, with the current one.
  [[nodiscard]] std::uint64_t issued() const { return issued_; }
  /// For Completion::later: all collectives up to this one are complete. Any thread may call it.
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
