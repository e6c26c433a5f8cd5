// SPDX-License-Identifier: Apache-2.0
#pragma once
// How many cores `tessera launch` gives each rank: mpirun's --map-by, from the cores of the hosts.

#include <string>
#include <vector>

namespace tessera::jobs {

/// A host as its ranks see it before they are bound.
struct HostCores {
  std::string host;
  int ranks = 0;
  std::vector<int> numa_nodes;  // cores of each, in mpirun's order; only cores that ranks may be bound to
  int quota = 0;                // cores' worth of time that the control group gives; 0: no limit
  [[nodiscard]] int cores() const;
};

struct RankMapping {
  std::string policy;   // "slot:PE=4", "numa:PE=3", "ppr:2:node:PE=4"; "": mpirun's own is left
  std::string refused;  // then why: "host has 2 cores for 5 ranks"
};

/// The same number of cores for every rank, as many as fit on the host that has the fewest for its ranks, so that each
/// rank has cores of one NUMA node or all cores of several. `unit`: "slot" or "ppr:N:node". Refused where a host has
/// fewer cores than ranks.
[[nodiscard]] RankMapping choose_mapping(const std::vector<HostCores>& hosts, const std::string& unit);

/// The line that a rank writes about its host, and the hosts of all ranks' lines; other text is skipped.
[[nodiscard]] std::string host_line(const HostCores& host);
[[nodiscard]] std::vector<HostCores> read_host_lines(const std::string& text);

}  // namespace tessera::jobs
