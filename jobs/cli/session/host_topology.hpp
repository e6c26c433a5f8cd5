// SPDX-License-Identifier: Apache-2.0
#pragma once
// The host's packages, NUMA nodes and cores, and which of them CPUs belong to. Read by hwloc: from this host, or from
// what HWLOC_SYNTHETIC or HWLOC_XMLFILE name.

#include <memory>
#include <vector>

namespace tessera::jobs {

/// What a set of CPUs covers. Numbers of CPUs and NUMA nodes are the system's (taskset, numactl), those of cores and
/// packages are hwloc's logical ones (mpirun --report-bindings).
struct CpuPlace {
  /// NUMA nodes that have cores of the set nearest to them. Of nodes with the same cores (DRAM and HBM of a package)
  /// one counts; a node that contains others, or that has no cores, does not.
  std::vector<int> numa_nodes;
  std::vector<int> packages, cores;  // ascending, with at least one CPU in the set
  /// The lowest CPU of each of `cores`: the same number in every topology of a host, where control groups leave parts.
  std::vector<int> core_cpus;
};

class HostTopology {
 public:
  /// Throws Error (usage) if hwloc cannot read it.
  HostTopology();
  ~HostTopology();
  HostTopology(const HostTopology&) = delete;
  HostTopology& operator=(const HostTopology&) = delete;

  /// False: it describes another machine, so that bindings of this one are not known. HWLOC_THISSYSTEM=1 says that what
  /// HWLOC_SYNTHETIC or HWLOC_XMLFILE name is this machine.
  [[nodiscard]] bool of_this_host() const;
  /// CPUs of the calling thread's binding that are in the topology; without a binding, all. Empty if !of_this_host().
  [[nodiscard]] std::vector<int> bound_cpus() const;
  /// CPUs outside the topology are ignored.
  [[nodiscard]] CpuPlace place(const std::vector<int>& cpus) const;
  /// All CPUs that processes here may be bound to: what they cover, and how many they are.
  [[nodiscard]] CpuPlace host() const;
  /// Cores of each NUMA node, as CpuPlace counts nodes, in the order of the cores.
  [[nodiscard]] std::vector<int> cores_of_numa_nodes() const;
  [[nodiscard]] int cpus() const;

 private:
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

}  // namespace tessera::jobs
