// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/commands/launch_binding.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "jobs/cli/commands/mpirun_options.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "jobs/cli/session/host_topology.hpp"
#include "jobs/cli/session/rank_mapping.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

using Clock = std::chrono::steady_clock;

/// Hosts that do not answer by then are not asked any longer.
constexpr std::chrono::seconds longest_query{60};

bool signal_is_pending() {
  sigset_t pending;
  ::sigpending(&pending);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1})
    if (::sigismember(&pending, number) == 1) return true;
  return false;
}

/// SIGTERM, and SIGKILL if it has not ended after a second: an mpirun that is killed leaves its daemons on other hosts.
void end_command(pid_t child) {
  ::kill(child, SIGTERM);
  const Clock::time_point begin = Clock::now();
  while (Clock::now() - begin < std::chrono::seconds(1)) {
    if (::waitpid(child, nullptr, WNOHANG) != 0) return;
    ::poll(nullptr, 0, 20);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

/// What a command prints; its stderr is dropped. Nothing if it cannot be started, or a signal came.
std::optional<std::string> output_of(const std::vector<std::string>& command, const sigset_t& mask) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setsigmask(&attributes, &mask);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t child = -1;
  const bool started = ::posix_spawnp(&child, words[0], &files, &attributes, words.data(), environ) == 0;
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  ::close(ends[1]);
  std::optional<std::string> text;
  if (started) text = "";
  bool ends_it = false;
  const Clock::time_point begin = Clock::now();
  while (started) {
    std::array<char, 4096> buffer{};
    pollfd ready{ends[0], POLLIN, 0};
    if (::poll(&ready, 1, 100) > 0) {
      const ssize_t size = ::read(ends[0], buffer.data(), buffer.size());
      if (size <= 0) break;
      text->append(buffer.data(), static_cast<std::size_t>(size));
    } else if (signal_is_pending() || Clock::now() - begin > longest_query) {
      if (signal_is_pending()) text.reset();
      ends_it = true;
      break;
    }
  }
  ::close(ends[0]);
  if (started && ends_it) end_command(child);
  else if (started) ::waitpid(child, nullptr, 0);
  return text;
}

std::string by_node(int ranks) { return strfmt("ppr:%d:node", ranks); }

RankMapping ask_hosts(const MpirunOptions& options, const sigset_t& mask, std::vector<HostCores>& hosts) {
  const HostTopology here;
  const int mine = static_cast<int>(affinity_cpus().size());
  if (here.of_this_host() && mine < here.cpus())
    return {"",
            strfmt("tessera launch itself may run on %d of %d CPUs (taskset, or the batch system)", mine, here.cpus())};
  std::vector<std::string> command{"mpirun"};
  command.insert(command.end(), options.for_query.begin(), options.for_query.end());
  if (options.per_node) command.insert(command.end(), {"--map-by", by_node(*options.per_node)});
  command.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
  command.insert(command.end(), {"launch", describe_host_option});
  const std::optional<std::string> lines = output_of(command, mask);
  if (!lines) return {};
  hosts = read_host_lines(*lines);
  return choose_mapping(hosts, options.per_node ? by_node(*options.per_node) : "slot");
}

bool in_batch_job() {
  for (const char* name : {"SLURM_JOB_ID", "PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "PE_HOSTFILE", "LOADL_HOSTFILE"})
    if (std::getenv(name) != nullptr) return true;
  return false;
}

}  // namespace

int describe_host() {
  // Another MPI's mpirun has other options: its ranks stay as they are.
  if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) return 0;
  try {
    std::array<char, 256> name{};
    ::gethostname(name.data(), name.size() - 1);
    const HostCores host{.host = name.data(), .numa_nodes = HostTopology().cores_of_numa_nodes(), .quota = cpu_quota()};
    std::fputs(host_line(host).c_str(), stdout);
    return 0;
  } catch (const Error&) { return 0; }
}

std::vector<std::string> with_binding(const std::vector<std::string>& words, const sigset_t& mask) {
  MpirunOptions options = read_mpirun_options(words, environ);
  if (const std::string note = take_torchrun_variables(options, in_batch_job()); !note.empty()) log::warn(65, note);
  std::vector<HostCores> hosts;
  RankMapping mapping;
  if (!options.unknown.empty()) mapping.refused = "whether its option " + options.unknown + " binds ranks is not known";
  else if (!options.binds) mapping = ask_hosts(options, mask, hosts);
  std::vector<std::string> all = options.given;
  if (mapping.policy.empty()) {
    if (!mapping.refused.empty())
      log::warn(66, "tessera launch leaves the binding of the ranks to mpirun: " + mapping.refused);
    if (options.per_node) all.insert(all.end(), {"-N", std::to_string(*options.per_node)});
    return all;
  }
  int ranks = 0;
  for (const HostCores& host : hosts) ranks += host.ranks;
  // Without a number mpirun starts a rank for each slot, and with PE=N for each N of them.
  if (!options.ranks && !options.per_node) all.insert(all.end(), {"-n", std::to_string(ranks)});
  all.insert(all.end(), {"--map-by", mapping.policy});
  return all;
}

}  // namespace tessera::jobs
