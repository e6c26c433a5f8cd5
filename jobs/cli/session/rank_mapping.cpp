// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/rank_mapping.hpp"

#include <algorithm>
#include <numeric>
#include <sstream>

#include "runtime/base/error.hpp"

namespace tessera::jobs {

namespace {

constexpr const char* line_tag = "tessera-host";

/// Cores that the ranks of a host can keep busy.
int usable(const HostCores& host) { return host.quota > 0 ? std::min(host.quota, host.cores()) : host.cores(); }

/// True if cores [begin, end) are of one NUMA node, or are all cores of several.
bool is_near(const std::vector<int>& nodes, int begin, int end) {
  int first = 0;
  bool from_edge = false;
  for (const int cores : nodes) {
    const int last = first + cores;
    if (begin >= first && end <= last) return true;
    from_edge = from_edge || begin == first;
    if (end == last) return from_edge;
    first = last;
  }
  return false;
}

/// `slot:PE=each` gives the ranks consecutive cores.
bool fits_by_slot(const HostCores& host, int each) {
  if (host.ranks * each > usable(host)) return false;
  for (int rank = 0; rank < host.ranks; ++rank)
    if (!is_near(host.numa_nodes, rank * each, (rank + 1) * each)) return false;
  return true;
}

/// `numa:PE=each` distributes the ranks over the NUMA nodes round-robin.
bool fits_by_numa(const HostCores& host, int each) {
  if (host.ranks * each > usable(host)) return false;
  const int nodes = static_cast<int>(host.numa_nodes.size());
  for (int node = 0; node < std::min(nodes, host.ranks); ++node)
    if ((host.ranks - node + nodes - 1) / nodes * each > host.numa_nodes[static_cast<std::size_t>(node)]) return false;
  return true;
}

/// The largest number of cores that fits everywhere; 0: not even one.
int largest(const std::vector<HostCores>& hosts, bool (*fits)(const HostCores&, int)) {
  int each = std::ranges::max(hosts, {}, &HostCores::cores).cores();
  while (each > 0 && !std::ranges::all_of(hosts, [&](const HostCores& host) { return fits(host, each); })) --each;
  return each;
}

}  // namespace

int HostCores::cores() const { return std::accumulate(numa_nodes.begin(), numa_nodes.end(), 0); }

RankMapping choose_mapping(const std::vector<HostCores>& hosts, const std::string& unit) {
  if (hosts.empty()) return {"", "the cores of the hosts are not known"};
  for (const HostCores& host : hosts)
    if (usable(host) < host.ranks)
      return {"",
              strfmt("%s has %d core%s%s for %d ranks", host.host.c_str(), usable(host), usable(host) == 1 ? "" : "s",
                     usable(host) < host.cores() ? " by its control group" : "", host.ranks)};
  const int by_slot = largest(hosts, fits_by_slot), by_numa = unit == "slot" ? largest(hosts, fits_by_numa) : 0;
  if (by_numa > by_slot) return {strfmt("numa:PE=%d", by_numa), ""};
  return {strfmt("%s:PE=%d", unit.c_str(), std::max(by_slot, 1)), ""};
}

std::string host_line(const HostCores& host) {
  std::string line = strfmt("%s %s %d", line_tag, host.host.c_str(), host.quota);
  for (const int cores : host.numa_nodes) line += " " + std::to_string(cores);
  return line + "\n";
}

std::vector<HostCores> read_host_lines(const std::string& text) {
  std::vector<HostCores> hosts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string tag;
    HostCores one{.host = {}, .ranks = 1, .numa_nodes = {}};
    if (!(words >> tag >> one.host >> one.quota) || tag != line_tag) continue;
    for (int cores = 0; words >> cores;) one.numa_nodes.push_back(cores);
    const auto known = std::ranges::find(hosts, one.host, &HostCores::host);
    if (known != hosts.end()) ++known->ranks;
    else hosts.push_back(std::move(one));
  }
  return hosts;
}

}  // namespace tessera::jobs
