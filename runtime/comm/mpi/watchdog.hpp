#pragma once
// MpiWatchdog: the watchdog of an MPI process. Its pulse thread wakes ten times a second: it shows that the process
// runs, answers other nodes that ask for statuses, and ends the run if a failure is not taken up by the main thread.

#include <functional>
#include <thread>

#include "runtime/comm/watchdog.hpp"

namespace tessera::comm {

class MpiWatchdog final : public Watchdog {
 public:
  /// `communicator` (Fortran number): of the watchdog alone, over the world. `end`: what ends the run, from any thread.
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

  void beat();
  void answer();
  void look_for_the_dead();

  int communicator_, ranks_per_node_, node_;
  std::function<void(const Error&)> end_;
  std::thread pulse_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::int64_t> failed_ns_{0}, asked_ns_{0};
  int missing_ = -1;
  struct Reply;
  std::vector<std::unique_ptr<Reply>> replies_;
};

}  // namespace tessera::comm
