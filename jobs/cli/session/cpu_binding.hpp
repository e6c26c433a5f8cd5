// SPDX-License-Identifier: Apache-2.0
#pragma once
// The binding of the ranks: which cores, packages and NUMA nodes of its host each may use, and what is wrong with it.

#include <string>
#include <vector>

#include "jobs/cli/session/host_topology.hpp"

namespace tessera {
class World;
}

namespace tessera::jobs {

struct RankBinding {
  std::string host;
  int host_cpus = 0, host_cores = 0, host_packages = 0, host_numa_nodes = 0;  // that processes may be bound to
  int usable_cores = 0;                 // of host_cores: as many as its control group and its batch job give time on
  CpuPlace place;                       // of the rank's CPUs; empty: not known
  std::vector<CpuPlace> bound_threads;  // of each thread that may use fewer CPUs than the rank
  std::string why_unknown;              // if hwloc failed
  [[nodiscard]] bool known() const { return !place.cores.empty(); }
  /// True if the rank may run on several packages or NUMA nodes.
  [[nodiscard]] bool straddles() const { return place.packages.size() > 1 || place.numa_nodes.size() > 1; }
};

/// Of the CPUs `cpus`, in a topology.
[[nodiscard]] RankBinding binding_of(const HostTopology& topology, const std::vector<int>& cpus,
                                     const std::string& host);
/// "4 of 16 cores, package 0 (of 2), NUMA nodes 0-1 (of 4)", and the threads that are bound to some of them.
[[nodiscard]] std::string binding_text(const RankBinding& binding);
/// The same of rank 0, and how many ranks straddle packages or NUMA nodes.
[[nodiscard]] std::string binding_summary(const std::vector<RankBinding>& ranks);

struct BindingFinding {
  int warning = 0;  // its number
  std::string text;
};
/// W054: ranks that may run on several packages or NUMA nodes, though packages or nodes of their host could be told
/// apart. W055: ranks that have cores in common while no rank may use other cores of their host. W056: ranks whose
/// threads are bound to cores in common. W064: the ranks of a host may run on less than half of the cores that they
/// could use. At most one of each.
[[nodiscard]] std::vector<BindingFinding> binding_findings(const std::vector<RankBinding>& ranks);

/// Collective: the binding of each rank's calling thread and of the threads of its kernels, on rank 0; nothing
/// elsewhere.
[[nodiscard]] std::vector<RankBinding> gather_bindings(World& world);

}  // namespace tessera::jobs
