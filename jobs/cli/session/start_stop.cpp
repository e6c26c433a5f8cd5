// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/start_stop.hpp"

#include "jobs/cli/session/signals.hpp"

namespace tessera::jobs {

namespace {

std::optional<TimeLimit>& time_to_start() {
  static std::optional<TimeLimit> limit;
  return limit;
}

}  // namespace

void set_time_to_start(const TimeLimit& limit) { time_to_start() = limit; }

void throw_if_stopped(const char* work) {
  std::string by;
  if (const int signal = stop_signal(); signal != 0) by = signal_name(signal);
  else if (const auto& limit = time_to_start(); limit && limit->expired()) by = "time limit (" + limit->source() + ")";
  if (by.empty()) return;
  throw Error(ExitCode::preempted, "stopped by " + by + " while " + work, "before step 1",
              "There is nothing to save: start the run again");
}

}  // namespace tessera::jobs
