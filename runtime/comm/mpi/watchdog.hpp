// SPDX-License-Identifier: Apache-2.0
#pragma once
// MpiWatchdog: the watchdog of an MPI process. A thread wakes ten times a second, writes this rank's heartbeat, answers
// other nodes that ask for statuses, and ends the run if the main thread does not act on a failure.

#include <functional>
#include <thread>

#include "runtime/comm/watchdog.hpp"

namespace tessera::comm {

class MpiWatchdog final : public Watchdog {
 public:
  /// `communicator`: Fortran handle of a world communicator for the watchdog alone. `end`: ends the run, from any
  /// thread.
  MpiWatchdog(int rank, int world, double timeout_s, int communicator, int ranks_per_node,
              std::function<void(const Error&)> end);
  ~MpiWatchdog() override;

  void start();
  void stop();
  void fail(const Error& error) override;
  [[nodiscard]] bool responsive(const RankStatus& status) const override;

 private:
  std::vector<StatusCopy> collect() override;
  double defer_s() const override;

  void heartbeat();
  void answer_questions();
  [[nodiscard]] std::int64_t ask();
  void find_dead_peers();
  void check_blocking_call();

  int communicator_, ranks_per_node_, node_;
  std::function<void(const Error&)> end_;
  std::thread heartbeat_thread_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::int64_t> failed_ns_{0}, asked_ns_{0};
  int missing_ = -1;
  struct Reply;
  std::vector<std::unique_ptr<Reply>> replies_;  // being sent, as are questions_
  struct Question;
  std::vector<std::unique_ptr<Question>> questions_;
  std::int64_t asked_ = 0;
  std::mutex collecting_;  // of asked_ and questions_
};

}  // namespace tessera::comm
