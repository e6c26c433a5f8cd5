// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/cpu_binding.hpp"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "jobs/cli/session/host_info.hpp"
#include "kernels/thread_binding.hpp"
#include "kernels/threads.hpp"
#include "runtime/base/at.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

namespace {

/// "package 0 (of 2)", "NUMA nodes 0-1 (of 4)"
std::string some_of(const char* what, const std::vector<int>& numbers, int all) {
  return strfmt("%s%s %s (of %d)", what, numbers.size() == 1 ? "" : "s", cpu_list(numbers).c_str(), all);
}

/// "rank 3", "ranks 0-2,5"
std::string named(const std::vector<int>& ranks) { return (ranks.size() == 1 ? "rank " : "ranks ") + cpu_list(ranks); }

/// How to start the ranks so that each has cores of one NUMA node. `host`: one of the hosts that have several; `ranks`:
/// how many ranks are on it.
std::string how_to_bind(const RankBinding& host, int ranks) {
  const bool nodes = host.host_numa_nodes > 1;
  const int domains = nodes ? host.host_numa_nodes : host.host_packages;
  const int each = std::max(1, ranks / domains), all = each * domains;
  return strfmt(
      "%s `mpirun --map-by ppr:%d:%s:PE=%d --bind-to core`, `srun --ntasks-per-node=%d --cpus-per-task=%d "
      "--cpu-bind=cores`",
      ranks < domains ? strfmt("start %d ranks a host, each on the cores of one:", all).c_str()
                      : "give each rank cores of one:",
      each, nodes ? "numa" : "socket", std::max(1, host.host_cores / all), all, std::max(1, host.host_cpus / all));
}

/// Ranks of each host.
std::map<std::string, std::vector<int>> by_host(const std::vector<RankBinding>& ranks) {
  std::map<std::string, std::vector<int>> hosts;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) hosts[ranks[rank].host].push_back(static_cast<int>(rank));
  return hosts;
}

std::vector<int> straddling(const std::vector<RankBinding>& ranks) {
  std::vector<int> some;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    if (ranks[rank].straddles()) some.push_back(static_cast<int>(rank));
  return some;
}

BindingFinding straddle_finding(const std::vector<RankBinding>& ranks, const std::vector<int>& some) {
  const RankBinding& first = ranks[at(some.front())];
  const int on_host =
      static_cast<int>(std::ranges::count_if(ranks, [&](const RankBinding& one) { return one.host == first.host; }));
  return {54, strfmt("%s may run on several %s (rank %d on %s: %s): a thread there reads memory that is near to other "
                     "cores; %s",
                     named(some).c_str(), first.place.numa_nodes.size() > 1 ? "NUMA nodes" : "packages", some.front(),
                     first.host.c_str(), binding_text(first).c_str(), how_to_bind(first, on_host).c_str())};
}

/// Those of `on_host` that have a core in common with another one. `cores_of`: of a rank, each once.
std::vector<int> sharing(const std::vector<int>& on_host, const auto& cores_of, std::map<int, int>& users) {
  for (const int rank : on_host)
    for (const int core : cores_of(rank)) ++users[core];
  std::vector<int> some;
  for (const int rank : on_host)
    if (std::ranges::any_of(cores_of(rank), [&](int core) { return users[core] > 1; })) some.push_back(rank);
  return some;
}

/// Of all bound threads of a rank together; `cores` or `core_cpus`.
std::vector<int> of_threads(const RankBinding& rank, std::vector<int> CpuPlace::*numbers) {
  std::set<int> all;
  for (const CpuPlace& thread : rank.bound_threads) all.insert((thread.*numbers).begin(), (thread.*numbers).end());
  return {all.begin(), all.end()};
}

/// W064 of one host.
std::optional<BindingFinding> idle_finding(const std::vector<RankBinding>& ranks, const std::vector<int>& on_host) {
  const RankBinding& first = ranks[at(on_host.front())];
  std::set<int> used;
  for (const int rank : on_host) {
    if (!ranks[at(rank)].known()) return std::nullopt;
    used.insert(ranks[at(rank)].place.core_cpus.begin(), ranks[at(rank)].place.core_cpus.end());
  }
  if (2 * static_cast<int>(used.size()) >= first.usable_cores) return std::nullopt;
  const int each = std::max(1, first.usable_cores / static_cast<int>(on_host.size()));
  return BindingFinding{
      64, strfmt("the ranks on %s may run on %zu of %d cores, the others are idle: start them with `tessera launch`, "
                 "which gives them all cores, or with `mpirun --map-by slot:PE=%d --bind-to core`, `srun "
                 "--cpus-per-task=%d --cpu-bind=cores`",
                 first.host.c_str(), used.size(), first.usable_cores, each,
                 each * std::max(1, first.host_cpus / std::max(1, first.host_cores)))};
}

/// W055 and W056 of one host.
std::vector<BindingFinding> sharing_findings(const std::vector<RankBinding>& ranks, const std::vector<int>& on_host) {
  const RankBinding& first = ranks[at(on_host.front())];
  std::vector<BindingFinding> findings;
  std::map<int, int> users, users_by_threads;
  const std::vector<int> some = sharing(
      on_host, [&](int rank) { return ranks[at(rank)].place.core_cpus; }, users);
  const int unused = first.host_cores - static_cast<int>(users.size());
  if (!some.empty() && unused > 0)
    findings.push_back({55, strfmt("%s on %s have cores in common, and %d of the host's %d cores are used by no rank; "
                                   "bind each rank to cores of its own (`mpirun --map-by slot:PE=N --bind-to core`, "
                                   "`srun --cpu-bind=cores`)",
                                   named(some).c_str(), first.host.c_str(), unused, first.host_cores)});
  const std::vector<int> bound = sharing(
      on_host, [&](int rank) { return of_threads(ranks[at(rank)], &CpuPlace::core_cpus); }, users_by_threads);
  if (!bound.empty())
    findings.push_back({56, strfmt("OpenMP binds threads of %s on %s to the same cores (OMP_PROC_BIND, OMP_PLACES): "
                                   "unset the variables, or bind each rank to cores of its own",
                                   named(bound).c_str(), first.host.c_str())});
  return findings;
}

}  // namespace

RankBinding binding_of(const HostTopology& topology, const std::vector<int>& cpus, const std::string& host) {
  const CpuPlace all = topology.host();
  return {.host = host,
          .host_cpus = topology.cpus(),
          .host_cores = static_cast<int>(all.cores.size()),
          .host_packages = static_cast<int>(all.packages.size()),
          .host_numa_nodes = static_cast<int>(all.numa_nodes.size()),
          .usable_cores = static_cast<int>(all.cores.size()),
          .place = topology.place(cpus),
          .bound_threads = {},
          .why_unknown = {}};
}

std::string binding_text(const RankBinding& binding) {
  if (!binding.why_unknown.empty()) return "not known: " + binding.why_unknown;
  if (!binding.known())
    return "not known: hwloc reads the topology of another machine (HWLOC_SYNTHETIC or HWLOC_XMLFILE without "
           "HWLOC_THISSYSTEM=1)";
  std::string text =
      strfmt("%zu of %d core%s", binding.place.cores.size(), binding.host_cores, binding.host_cores == 1 ? "" : "s");
  if (!binding.place.packages.empty()) text += ", " + some_of("package", binding.place.packages, binding.host_packages);
  text += ", " + some_of("NUMA node", binding.place.numa_nodes, binding.host_numa_nodes);
  if (const std::size_t threads = binding.bound_threads.size(); threads > 0) {
    const std::vector<int> cores = of_threads(binding, &CpuPlace::cores);
    text += strfmt(", %zu thread%s bound to core%s %s", threads, threads == 1 ? "" : "s", cores.size() == 1 ? "" : "s",
                   cpu_list(cores).c_str());
  }
  return text;
}

std::string binding_summary(const std::vector<RankBinding>& ranks) {
  if (const auto unknown = std::ranges::find_if_not(ranks, &RankBinding::known); unknown != ranks.end())
    return binding_text(*unknown);
  std::string text = "rank 0 on " + binding_text(ranks.front());
  const std::vector<int> some = straddling(ranks);
  if (ranks.size() == 1) return text;
  if (some.empty()) return text + " | every rank within one NUMA node";
  return text + strfmt(" | %zu of %zu ranks on several packages or NUMA nodes", some.size(), ranks.size());
}

std::vector<BindingFinding> binding_findings(const std::vector<RankBinding>& ranks) {
  std::vector<BindingFinding> findings;
  if (const std::vector<int> some = straddling(ranks); !some.empty()) findings.push_back(straddle_finding(ranks, some));
  for (const auto& [host, on_host] : by_host(ranks)) {
    std::vector<BindingFinding> of_host = sharing_findings(ranks, on_host);
    if (of_host.empty())
      if (const std::optional<BindingFinding> idle = idle_finding(ranks, on_host)) of_host.push_back(*idle);
    findings.insert(findings.end(), of_host.begin(), of_host.end());
    if (!of_host.empty()) break;  // hosts are mostly equal: the first says it
  }
  return findings;
}

namespace {

nlohmann::json packed(const CpuPlace& place) {
  return {place.numa_nodes, place.packages, place.cores, place.core_cpus};
}

CpuPlace unpacked_place(const nlohmann::json& json) {
  return {.numa_nodes = json[0], .packages = json[1], .cores = json[2], .core_cpus = json[3]};
}

std::string packed(const RankBinding& one) {
  nlohmann::json threads = nlohmann::json::array();
  for (const CpuPlace& thread : one.bound_threads) threads.push_back(packed(thread));
  return nlohmann::json{one.host,          one.host_cpus,      one.host_cores,  one.host_packages, one.host_numa_nodes,
                        packed(one.place), std::move(threads), one.why_unknown, one.usable_cores}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

RankBinding unpacked(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  RankBinding one{.host = json[0],
                  .host_cpus = json[1],
                  .host_cores = json[2],
                  .host_packages = json[3],
                  .host_numa_nodes = json[4],
                  .usable_cores = json[8],
                  .place = unpacked_place(json[5]),
                  .bound_threads = {},
                  .why_unknown = json[7]};
  std::ranges::transform(json[6], std::back_inserter(one.bound_threads), unpacked_place);
  return one;
}

/// How many of a host's cores a run can keep busy.
int usable_cores(const RankBinding& host) {
  int cores = host.host_cores;
  if (const int quota = cpu_quota(); quota > 0) cores = std::min(cores, quota);
  const char* of_job = std::getenv("SLURM_CPUS_ON_NODE");  // where Slurm does not confine the job to them
  if (const int cpus = of_job == nullptr ? 0 : std::atoi(of_job); cpus > 0 && host.host_cpus > 0)
    cores = std::min(cores, std::max(1, cpus * host.host_cores / host.host_cpus));
  return cores;
}

/// Of each thread that may use fewer CPUs than the calling one.
std::vector<CpuPlace> bound_threads(const HostTopology& topology) {
  const std::vector<int> mine = topology.bound_cpus();
  std::vector<std::vector<int>> cpus(at(kernels::threads()));
  std::exception_ptr failed;
  std::mutex mutex;
  kernels::on_each_thread([&](int thread) {
    try {
      cpus[at(thread)] = topology.bound_cpus();
    } catch (...) {
      const std::lock_guard lock(mutex);
      failed = std::current_exception();
    }
  });
  if (failed) std::rethrow_exception(failed);
  std::vector<CpuPlace> bound;
  for (const std::vector<int>& some : cpus)
    if (some.size() < mine.size()) bound.push_back(topology.place(some));
  return bound;
}

}  // namespace

std::vector<RankBinding> gather_bindings(World& world) {
  RankBinding mine{.host = world.host(), .place = {}, .bound_threads = {}, .why_unknown = {}};
  try {
    const HostTopology topology;
    mine = binding_of(topology, topology.bound_cpus(), world.host());
    mine.usable_cores = usable_cores(mine);
    mine.bound_threads = bound_threads(topology);
  } catch (const Error& error) {  // it decides what is printed, not how a run computes
    mine.why_unknown = error.line();
  }
  const std::vector<std::string> all = world.gather(packed(mine));
  std::vector<RankBinding> ranks;
  if (world.rank() == 0) std::ranges::transform(all, std::back_inserter(ranks), unpacked);
  return ranks;
}

}  // namespace tessera::jobs
