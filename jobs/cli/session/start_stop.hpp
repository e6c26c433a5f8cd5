// SPDX-License-Identifier: Apache-2.0
#pragma once
// Stops a run before its first step: a signal or the time limit while data are made ready. There is nothing to save.

#include "jobs/cli/session/time_limit.hpp"

namespace tessera::jobs {

/// From now on throw_if_stopped() throws when this limit has expired, too.
void set_time_to_start(const TimeLimit& limit);
/// Throws Error (preempted) if stop_signal() is set or the time is over. `work`: what is cut short, "tokenizing". Of
/// this rank alone: call it where all ranks agree on errors.
void throw_if_stopped(const char* work);

}  // namespace tessera::jobs
