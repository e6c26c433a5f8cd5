// SPDX-License-Identifier: Apache-2.0
// Affinity by sched_getaffinity, memory by /proc and the control group.
#include "jobs/cli/session/host_info.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "runtime/base/error.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

std::vector<int> affinity_cpus() {
  // The mask's size is not known beforehand: a kernel built for many CPUs wants a large one.
  for (int capacity = 1024; capacity <= 1 << 20; capacity *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(capacity));
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(capacity));
    std::vector<int> cpus;
    const bool good = set != nullptr && sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; good && cpu < capacity; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set)) cpus.push_back(cpu);
    }
    CPU_FREE(set);
    if (good) return cpus;
  }
  return {0};
}

void set_affinity(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  const auto capacity = static_cast<std::size_t>(*std::ranges::max_element(cpus)) + 1;
  cpu_set_t* set = CPU_ALLOC(capacity);
  if (set == nullptr) return;
  CPU_ZERO_S(CPU_ALLOC_SIZE(capacity), set);
  for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), CPU_ALLOC_SIZE(capacity), set);
  sched_setaffinity(0, CPU_ALLOC_SIZE(capacity), set);
  CPU_FREE(set);
}

std::string cpu_list(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(cpus[i]);
    if (last > i) text += "-" + std::to_string(cpus[last]);
    i = last + 1;
  }
  return text;
}

int cpu_quota(const std::string& text) {
  std::istringstream words(text);
  double quota = 0, period = 0;
  if (!(words >> quota >> period) || quota <= 0 || period <= 0) return 0;  // "max", or -1
  return std::max(1, static_cast<int>(std::ceil(quota / period - 1e-9)));
}

int cpu_quota() {
  const auto text_of = [](const std::string& path) {
    std::ifstream in(path);
    std::string text;
    std::getline(in, text);
    return text;
  };
  const std::string root = "/sys/fs/cgroup";
  int least = cpu_quota(text_of(root + "/cpu/cpu.cfs_quota_us") + " " + text_of(root + "/cpu/cpu.cfs_period_us"));
  const auto lower = [&](int quota) {
    if (quota > 0 && (least == 0 || quota < least)) least = quota;
  };
  std::string group;  // of version 2, "0::/a/b"; the groups around it hold too
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);)
    if (line.starts_with("0::/")) group = line.substr(3);
  for (;; group.resize(group.rfind('/'))) {
    lower(cpu_quota(text_of(root + group + "/cpu.max")));
    if (group.rfind('/') == std::string::npos) return least;
  }
}

std::vector<double> fair_shares(const std::vector<RankCores>& ranks) {
  std::map<std::pair<std::string, int>, int> users;
  for (const RankCores& rank : ranks) {
    for (const int cpu : rank.cpus) ++users[{rank.host, cpu}];
  }
  std::vector<double> shares;
  for (const RankCores& rank : ranks) {
    double share = 0;
    for (const int cpu : rank.cpus) share += 1.0 / users[{rank.host, cpu}];
    shares.push_back(share);
  }
  return shares;
}

ThreadAllocation allocate_threads(World& world, int wanted) {
  ThreadAllocation result;
  result.cpus = affinity_cpus();
  std::ostringstream mine;
  mine << world.host();
  for (const int cpu : result.cpus) mine << ' ' << cpu;
  std::string table;
  std::vector<RankCores> ranks;
  for (const std::string& line : world.gather(mine.str())) {
    std::istringstream in(line);
    RankCores rank;
    in >> rank.host;
    for (int cpu = 0; in >> cpu;) rank.cpus.push_back(cpu);
    ranks.push_back(std::move(rank));
  }
  for (const double share : fair_shares(ranks)) table += strfmt("%.9g\n", share);
  std::istringstream shares(world.broadcast(table));
  bool overcommitted = false;
  for (int rank = 0; rank < world.size(); ++rank) {
    double share = 1;
    shares >> share;
    const int threads = wanted > 0 ? wanted : std::max(1, static_cast<int>(std::floor(share + 1e-6)));
    if (threads > share + 1e-6) overcommitted = true;
    if (rank == world.rank()) result.threads = threads, result.share = share;
  }
  result.overcommitted = overcommitted;
  return result;
}

namespace {

/// "Name:   123 kB" of a /proc file, in bytes; 0 if it is not there.
std::uint64_t proc_kilobytes(const char* path, const std::string& name) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(name + ":", 0) != 0) continue;
    std::istringstream words(line.substr(name.size() + 1));
    std::uint64_t kilobytes = 0;
    words >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}

std::uint64_t number_in(const char* path) {
  std::ifstream in(path);
  std::uint64_t value = 0;
  return in >> value ? value : 0;  // "max" reads as nothing
}

}  // namespace

std::uint64_t pss_bytes() { return proc_kilobytes("/proc/self/smaps_rollup", "Pss"); }

std::int64_t peak_resident_bytes() {
  struct rusage used {};
  (void)::getrusage(RUSAGE_SELF, &used);
  return std::int64_t{1024} * used.ru_maxrss;
}

HostMemory host_memory() {
  HostMemory memory{proc_kilobytes("/proc/meminfo", "MemAvailable"), proc_kilobytes("/proc/meminfo", "MemTotal")};
  static constexpr const char* groups[][2] = {
      {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}};
  for (const auto& group : groups) {
    const std::uint64_t limit = number_in(group[0]), used = number_in(group[1]);
    if (limit == 0 || limit >= memory.total) continue;
    memory.total = limit;
    memory.available = std::min(memory.available, limit > used ? limit - used : 0);
  }
  return memory;
}

HostMemory shared_memory() {
  struct statvfs info {};
  if (statvfs("/dev/shm", &info) != 0) return {};
  return {static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize,
          static_cast<std::uint64_t>(info.f_blocks) * info.f_frsize};
}

}  // namespace tessera::jobs
