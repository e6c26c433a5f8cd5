// SPDX-License-Identifier: Apache-2.0
#pragma once
// tessera launch: mpirun in a session of its own, so that signals reach the ranks through this process alone.

#include <string>
#include <vector>

namespace tessera::jobs {

/// True for the arguments `launch … -- …`, whose options are mpirun's; `launch --help` is parsed as other commands are.
[[nodiscard]] bool is_launch(const std::vector<std::string>& arguments);

/// Runs `mpirun <options> <this program> <what follows "--">` and returns its exit code. The first SIGTERM, SIGHUP or
/// SIGINT becomes SIGUSR1 for a training run (finish the step, save, exit 75); the second ends it, as the first does
/// with other commands: then 128 + the signal is returned. SIGUSR1 and SIGUSR2 are passed on. Where the ranks of this
/// host have ended, and mpirun has not thirty seconds later (it waits for a host that is cut off), it is killed: 6.
/// Orphaned processes are waited for, so it can be a container's first process. Ends mpirun if this process is killed.
int launch(const std::vector<std::string>& arguments);

}  // namespace tessera::jobs
