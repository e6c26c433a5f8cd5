// SPDX-License-Identifier: Apache-2.0
#pragma once
// The host as this process sees it (Linux): cores it may use, memory it uses, memory that is free.

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {
class World;
}

namespace tessera::jobs {

/// The CPUs of this process' affinity mask.
[[nodiscard]] std::vector<int> affinity_cpus();
/// Binds the calling thread, and the threads and programs that it will start. What the system refuses is left as it is.
void set_affinity(const std::vector<int>& cpus);
/// "0-3,8" of a sorted list.
[[nodiscard]] std::string cpu_list(const std::vector<int>& cpus);

/// How many cores' worth of time the process' control group gives it, rounded up; 0: no limit.
[[nodiscard]] int cpu_quota();
/// The same of what the files of a control group hold: `cpu.max` (version 2), or quota and period (version 1).
[[nodiscard]] int cpu_quota(const std::string& text);

struct RankCores {
  std::string host;
  std::vector<int> cpus;
};
/// For each rank, the cores of its mask, where a core in the masks of n ranks of a host counts 1/n.
[[nodiscard]] std::vector<double> fair_shares(const std::vector<RankCores>& ranks);

struct ThreadAllocation {
  int threads = 1;             // of this rank
  double share = 1;            // from fair_shares; below 1, ranks share a core
  bool overcommitted = false;  // some rank has more threads than its share of cores
  std::vector<int> cpus;
  std::string binding;  // of the ranks, on rank 0 (cpu_binding.hpp)
};
/// Collective: `wanted` threads for each rank; 0: as many as its share has whole cores, at least one.
/// `binding` remains empty.
[[nodiscard]] ThreadAllocation allocate_threads(World& world, int wanted);

/// Proportional set size of this process in bytes (a page shared by n processes counts 1/n); 0 if it cannot be read.
[[nodiscard]] std::uint64_t pss_bytes();
/// Peak resident memory of this process in bytes, program and libraries included.
[[nodiscard]] std::int64_t peak_resident_bytes();
/// Free and total bytes of this machine, or of the process' control group if that has less.
struct HostMemory {
  std::uint64_t available = 0, total = 0;
};
[[nodiscard]] HostMemory host_memory();
/// The same of /dev/shm; zeros if there is none.
[[nodiscard]] HostMemory shared_memory();

}  // namespace tessera::jobs
