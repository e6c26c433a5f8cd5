#pragma once
// Requests that come to a run from outside: a checkpoint now, or an end in time. What becomes of them
// is decided by all ranks together.

#include <chrono>
#include <optional>

#include "jobs/cli/options/options.hpp"

namespace tessera::jobs {

/// From now on SIGUSR1 asks for a checkpoint and the end of the run (exit 75), SIGUSR2 for a checkpoint.
void install_preemption_handlers() noexcept;
[[nodiscard]] bool stop_requested() noexcept;
/// True once for each SIGUSR2 or more.
[[nodiscard]] bool take_save_request() noexcept;

/// When this run has to be over: --time_limit after the program's start, or the end of the batch job
/// (SLURM_JOB_END_TIME), whichever is sooner.
class TimeLimit {
 public:
  using Clock = std::chrono::steady_clock;
  /// Throws Error (usage) if SLURM_JOB_END_TIME is no time.
  TimeLimit(const Options& options, Clock::time_point started);

  [[nodiscard]] bool exists() const { return end_.has_value(); }
  /// One step has taken so long, one save so long; running means are kept.
  void step_took(double seconds);
  void save_took(double seconds) { save_ = seconds; }
  /// Too little time is left for two more steps and a checkpoint.
  [[nodiscard]] bool expires_soon() const;
  /// Of the last save, before there is one.
  void expect_save(double seconds) { save_ = seconds; }

 private:
  std::optional<Clock::time_point> end_;
  double margin_ = 10, step_ = 0, save_ = 0;
};

}  // namespace tessera::jobs
