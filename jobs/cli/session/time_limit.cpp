// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/time_limit.hpp"

#include <algorithm>
#include <cstdlib>

namespace tessera::jobs {

TimeLimit::TimeLimit(const Options& options, Clock::time_point started) {
  if (options.has("time_limit")) {
    const double limit = options.seconds("time_limit");
    end_ = started + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limit));
    margin_ = std::min(margin_, limit / 10);
    source_ = "--time_limit " + options.value("time_limit").items.front();
  }
  const char* slurm = std::getenv("SLURM_JOB_END_TIME");
  if (slurm == nullptr || *slurm == '\0') return;
  char* rest = nullptr;
  const long long epoch = std::strtoll(slurm, &rest, 10);
  if (*rest != '\0' || epoch <= 0)
    throw Error(ExitCode::usage, std::string("SLURM_JOB_END_TIME is not a time in seconds since 1970: ") + slurm,
                "environment", "Unset it, or give --time_limit");
  const auto left =
      std::chrono::system_clock::from_time_t(static_cast<std::time_t>(epoch)) - std::chrono::system_clock::now();
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(left);
  if (!end_ || end < *end_) end_ = end, source_ = "SLURM_JOB_END_TIME";
}

void TimeLimit::step_took(double seconds) { step_ = step_ == 0 ? seconds : 0.8 * step_ + 0.2 * seconds; }

double TimeLimit::seconds_left() const { return std::chrono::duration<double>(*end_ - Clock::now()).count(); }

bool TimeLimit::expires_soon() const { return end_ && seconds_left() < std::max(2 * step_, pass_) + save_ + margin_; }

bool TimeLimit::expired() const { return end_ && seconds_left() < margin_; }

}  // namespace tessera::jobs
