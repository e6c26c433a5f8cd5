// SPDX-License-Identifier: Apache-2.0
#pragma once
// Watchdog: what every rank is doing, and which ranks are late. Each rank writes its status into memory that its node's
// ranks read. When a wait takes too long, the statuses of all ranks are collected and compared.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/mesh.hpp"

namespace tessera::comm {

inline constexpr int max_records = 64;  // communicators of one world that live at a time
inline constexpr std::size_t operation_chars = 16, unit_chars = 32;

/// "reduce_scatter h.3 m0"
[[nodiscard]] std::string text_of(const char* operation, const char* unit, std::int64_t micro);

/// The collectives that a rank has issued on one communicator. Atomic, since other ranks read it while it is written.
struct Record {
  std::atomic<std::int64_t> index;     // number of the communicator, from 1, in order of creation; 0: unused
  std::atomic<std::uint64_t> entered;  // sequence number of the last collective that began
  std::atomic<std::uint64_t> left;     // of the last one that ended; less than `entered` while waiting
  std::atomic<std::uint64_t> bytes;
  std::atomic<std::int64_t> micro;
  std::atomic<std::int64_t> released;  // the communicator is gone; what it did last stays until another one is recorded
  std::atomic<std::uint64_t> text[(operation_chars + unit_chars) / 8];

  void write(const CollectiveLabel& label, std::uint64_t count);
};

/// A rank's row in its node's status table. Zero-filled memory is a valid row.
struct RankStatus {
  std::atomic<std::int64_t> pid, pid_namespace, step, alive_ns, ended;
  std::atomic<std::int64_t> blocking_calls;  // of MPI, that it has begun (mpi/mpi.hpp)
  std::atomic<std::int64_t> worked_ns;       // runtime/base/local_work.hpp; 0: never
  Record records[max_records];
};
struct NodeStatus {
  std::atomic<std::int32_t> aborting,
      reporting;  // rank + 1 of the rank that ends the run, and of the one that reports; 0: none
  std::atomic<std::int64_t> extended_until_ns;  // the ranks that others wait for are at work; 0: they are not
};

/// A copy of a status, to send and compare.
struct RecordCopy {
  std::int64_t index = 0;
  std::uint64_t entered = 0, left = 0, bytes = 0;
  std::int64_t micro = -1;
  char operation[operation_chars] = {}, unit[unit_chars] = {};
  [[nodiscard]] bool waiting() const { return entered > left; }
  [[nodiscard]] std::string text() const { return text_of(operation, unit, micro); }
};
struct StatusCopy {
  std::int32_t rank = 0, answered = 0, responsive = 0, ended = 0;
  std::int64_t step = 0;
  std::int64_t since_work_ns = -1;  // time since its last sign of local work; -1: none yet
  std::int64_t question = 0;        // the one that this copy answers, between nodes
  RecordCopy records[max_records] = {};
};
[[nodiscard]] StatusCopy copy(const RankStatus& status, int rank, bool responsive);

/// The groups that communicator `index` joins.
struct Group {
  Mesh mesh{1, 1};
  AxisSet axes = Axis::replicate;
};

/// The ranks that the others wait for, and as one line: "rank 2@node1 is late: step 7, reduce_scatter h.3 m0; it was
/// last seen at gather h.4 (sequence 31)".
struct Stragglers {
  std::vector<int> ranks;  // none: no rank is behind the others, or ranks have issued different collectives
  std::string line;
  bool all_entered = false;  // every rank has entered the collectives that others wait in
};
/// Pure. `statuses` and `names` ("2@node1") in rank order; groups[index - 1].
[[nodiscard]] Stragglers diagnose_stragglers(const std::vector<StatusCopy>& statuses, const std::vector<Group>& groups,
                                             const std::vector<std::string>& names);
/// How much longer, in nanoseconds, to wait for stragglers that do local work: until the first of them has shown none
/// for `timeout_ns`; where every rank has entered, until none of all has: what a rank enters after its work has the
/// timeout from then on. 0: there are none, or one does not run or has shown none for so long. Pure.
[[nodiscard]] std::int64_t extra_wait_ns(const Stragglers& late, const std::vector<StatusCopy>& statuses,
                                         std::int64_t timeout_ns);

/// What a communicator waits for, and since when.
struct Waiting {
  const char* operation = "";
  std::chrono::steady_clock::time_point since;
};

/// One rank's watchdog. Thread-safe: several communicators of a rank may wait at once.
class Watchdog {
 public:
  using Clock = std::chrono::steady_clock;
  Watchdog(int rank, int world, double timeout_s);
  virtual ~Watchdog() = default;

  /// Sets the node's status table, whose first row is of world rank `first`.
  void attach(NodeStatus* node_status, RankStatus* statuses, int first, int count);
  void set_names(std::vector<std::string> names) { names_ = std::move(names); }
  [[nodiscard]] const std::string& name_of(int rank) const { return names_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] RankStatus& mine() { return statuses_[rank_ - first_]; }
  [[nodiscard]] NodeStatus& node_status() { return *node_status_; }

  /// Registers a communicator. Returns its number, from 1, equal on every rank.
  int add_group(const Group& group);
  /// The record of communicator `index`: an unused one, else that of the oldest communicator that has released its own.
  /// Throws Error (internal) if max_records communicators live.
  Record& record(int index);

  /// Every wait calls it some times a second. Throws Error (communication) when the run has failed on any rank, and,
  /// with the name of the late rank, when the wait is longer than the timeout. A rank that does local work
  /// (runtime/base/local_work.hpp) is late once it has shown none for the timeout.
  void poll(const Waiting& waiting);
  /// Throws: ranks of this node issued different collectives; says which.
  [[noreturn]] void mismatch();
  /// Records a failure, after which every wait here throws. The first one is kept as the root cause.
  virtual void fail(const Error& error);
  [[nodiscard]] bool failed() const { return failed_.load(); }
  /// The root cause, or `error` if there is none.
  [[nodiscard]] Error root_or(const Error& error) const;

  [[nodiscard]] std::vector<StatusCopy> own_node() const;
  /// True if the process of a rank on this node runs: its heartbeat is recent.
  [[nodiscard]] virtual bool responsive(const RankStatus&) const { return true; }

 protected:
  /// Statuses of all ranks, in rank order; may take half a second.
  [[nodiscard]] virtual std::vector<StatusCopy> collect() { return own_node(); }
  /// Seconds that this node waits for another one to report.
  [[nodiscard]] virtual double defer_s() const { return 0; }
  /// A failure on another rank; empty if none.
  [[nodiscard]] virtual std::string failed_elsewhere() const { return {}; }

  int rank_, world_;
  double timeout_s_;
  NodeStatus* node_status_ = nullptr;
  RankStatus* statuses_ = nullptr;
  int first_ = 0, count_ = 0;

 private:
  [[nodiscard]] std::vector<Group> groups() const;

  std::vector<std::string> names_;
  mutable std::mutex mutex_;
  std::vector<Group> groups_;
  std::atomic<bool> failed_{false};
  std::unique_ptr<Error> root_;
};

[[nodiscard]] std::int64_t monotonic_ns();

}  // namespace tessera::comm
