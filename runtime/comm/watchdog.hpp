#pragma once
// Watchdog: what every rank of the world is doing, and who is late. Each rank writes its own status where its node's
// peers can read it; when a wait has lasted too long, the statuses of all ranks are collected and judged.

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

inline constexpr int max_records = 16;  // communicators of one world that are watched at a time
inline constexpr std::size_t operation_chars = 16, unit_chars = 32;

/// "reduce h.3 m0"
[[nodiscard]] std::string text_of(const char* operation, const char* unit, std::int64_t micro);

/// The collectives that a rank has issued on one communicator; in memory that others read while it is written (hence
/// atomics).
struct Record {
  std::atomic<std::int64_t> index;     // of the communicator + 1, in order of creation; 0: none
  std::atomic<std::uint64_t> entered;  // collectives begun: the sequence number of the last
  std::atomic<std::uint64_t> left;     // collectives ended; below `entered` while waiting
  std::atomic<std::uint64_t> bytes;
  std::atomic<std::int64_t> micro;
  std::atomic<std::uint64_t> text[(operation_chars + unit_chars) / 8];

  void write(const CollectiveLabel& label, std::uint64_t count);
};

/// One rank's part of its node's node_status. Zero-filled memory is a valid one.
struct RankStatus {
  std::atomic<std::int64_t> pid, pid_namespace, step, alive_ns, ended;
  Record records[max_records];
};
struct NodeStatus {
  std::atomic<std::int32_t> aborting, reporting;  // rank + 1 of who does
};

/// A status as it is sent and judged.
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
  RecordCopy records[max_records] = {};
};
[[nodiscard]] StatusCopy copy(const RankStatus& status, int rank, bool responsive);

/// Which ranks communicator `index` joins: the groups of an axis.
struct Group {
  Mesh mesh{1, 1};
  Axis axis = Axis::replicate;
};

/// Who holds everybody up, as one line: "rank 2@node1 is late: step 7, reduce h.3 m0; it was last seen at gather h.4
/// (sequence 31)". Pure. `statuses` in rank order; `groups[index - 1]`; `names` "2@node1".
[[nodiscard]] std::string diagnose_stragglers(const std::vector<StatusCopy>& statuses, const std::vector<Group>& groups,
                                              const std::vector<std::string>& names);

/// What a waiting communicator shows.
struct Waiting {
  const char* operation = "";
  std::chrono::steady_clock::time_point since;
};

/// The watchdog of one rank. Thread-safe: several communicators of a rank may wait at once.
class Watchdog {
 public:
  using Clock = std::chrono::steady_clock;
  Watchdog(int rank, int world, double timeout_s);
  virtual ~Watchdog() = default;

  /// Where this node keeps its node_status; `first` is the world rank of its first status.
  void attach(NodeStatus* node_status, RankStatus* statuses, int first, int count);
  void set_names(std::vector<std::string> names) { names_ = std::move(names); }
  [[nodiscard]] const std::string& name_of(int rank) const { return names_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] RankStatus& mine() { return statuses_[rank_ - first_]; }
  [[nodiscard]] NodeStatus& node_status() { return *node_status_; }

  /// A new communicator: its number, from 1, the same on every rank.
  int add_group(const Group& group);
  /// The record of communicator `index`; an older communicator's place may be taken.
  Record& record(int index);

  /// Called by every wait, some times a second. Throws Error (communication) when the run has failed here or elsewhere,
  /// and when the wait is longer than the timeout (then it says who is late).
  void poll(const Waiting& waiting);
  /// Members of one node issued different collectives: says which. Does not return.
  [[noreturn]] void mismatch();
  /// The first failure is the root cause; later ones are its echoes. After it every wait here throws.
  virtual void fail(const Error& error);
  [[nodiscard]] bool failed() const { return failed_.load(); }
  /// The root cause if there is one, else `error`.
  [[nodiscard]] Error root_or(const Error& error) const;

  [[nodiscard]] std::vector<StatusCopy> own_node() const;
  /// True if the process of a peer on this node runs (its pulse is fresh).
  [[nodiscard]] virtual bool responsive(const RankStatus&) const { return true; }

 protected:
  /// Statuses of all ranks, in rank order; may take half a second.
  [[nodiscard]] virtual std::vector<StatusCopy> collect() { return own_node(); }
  /// How long this node leaves the report to others.
  [[nodiscard]] virtual double defer_s() const { return 0; }
  /// A failure of the job that this rank has not seen itself; empty if none.
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
