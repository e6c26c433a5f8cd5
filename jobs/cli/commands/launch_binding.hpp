// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which cores `tessera launch` gives the ranks: it asks the hosts, through mpirun, and adds --map-by.

#include <csignal>
#include <string>
#include <vector>

namespace tessera::jobs {

/// What a rank of the query runs: `tessera launch --describe-host`. Prints the host's line (session/rank_mapping.hpp).
constexpr const char* describe_host_option = "--describe-host";
int describe_host();

/// mpirun's options for the ranks: `words`, and --map-by unless an option or a variable binds them already. Starts one
/// process per rank for a moment, with the signal mask `mask`. Where ranks are not bound, W066 says why. Throws Error
/// (usage) for NPROC_PER_NODE and NNODES that cannot be followed.
[[nodiscard]] std::vector<std::string> with_binding(const std::vector<std::string>& words, const sigset_t& mask);

}  // namespace tessera::jobs
