// SPDX-License-Identifier: Apache-2.0
#pragma once
// When a run must be over. Each rank only records it; all ranks act on it together, after a step or a pass.

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

#include "jobs/cli/options/options.hpp"

namespace tessera::jobs {

/// When this run must be over: --time_limit after the program's start, or the end of the batch job
/// (SLURM_JOB_END_TIME), whichever is sooner.
class TimeLimit {
 public:
  using Clock = std::chrono::steady_clock;
  /// Throws Error (usage) if SLURM_JOB_END_TIME is not a time.
  TimeLimit(const Options& options, Clock::time_point started);

  [[nodiscard]] bool exists() const { return end_.has_value(); }
  /// "--time_limit 8s" or "SLURM_JOB_END_TIME"; "" if there is none.
  [[nodiscard]] const std::string& source() const { return source_; }
  /// Seconds of a step (a running mean is kept) and of a save (the last one counts; an estimate before the first).
  void step_took(double seconds);
  void save_took(double seconds) { save_ = seconds; }
  /// Seconds of a pass of an evaluation or a sample, after which the time is looked at again (the longest one counts).
  void pass_took(double seconds) { pass_ = std::max(pass_, seconds); }
  /// Too little time is left for a checkpoint and what comes before the next look: two steps, or a pass.
  [[nodiscard]] bool expires_soon() const;
  /// Too little time is left for anything but to end.
  [[nodiscard]] bool expired() const;

 private:
  [[nodiscard]] double seconds_left() const;
  std::optional<Clock::time_point> end_;
  std::string source_;
  double margin_ = 10, step_ = 0, save_ = 0, pass_ = 0;
};

}  // namespace tessera::jobs
