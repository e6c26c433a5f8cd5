#pragma once
// What this process finds on its machine: cores it may use, memory it takes, memory it may take. Linux.

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {
class World;
}

namespace tessera::jobs {

/// CPUs of this process' affinity mask.
[[nodiscard]] std::vector<int> affinity_cpus();
/// "0-3,8" of a sorted list.
[[nodiscard]] std::string cpu_list(const std::vector<int>& cpus);

struct RankCores {
  std::string host;
  std::vector<int> cpus;
};
/// Each rank's fair share of the cores in its mask: a core shared by n ranks of a host counts 1/n for each.
[[nodiscard]] std::vector<double> fair_shares(const std::vector<RankCores>& ranks);

struct ThreadAllocation {
  int threads = 1;             // of this rank
  double share = 1;            // cores it may call its own; below 1: ranks share a core
  bool overcommitted = false;  // some rank has more threads than cores of its own
  std::vector<int> cpus;
};
/// Collective: `wanted` threads for each rank, or (0) the whole cores of its fair share, at least one.
[[nodiscard]] ThreadAllocation allocate_threads(World& world, int wanted);

/// Proportional set size of this process, bytes: private pages, and shared ones by the number of
/// sharers. 0 if it cannot be read.
[[nodiscard]] std::uint64_t pss_bytes();
/// Bytes that this machine (or its control group) can still give, and has in all.
struct HostMemory {
  std::uint64_t available = 0, total = 0;
};
[[nodiscard]] HostMemory host_memory();
/// Size and free bytes of /dev/shm; zeros if there is none.
[[nodiscard]] HostMemory shared_memory();

}  // namespace tessera::jobs
