// SPDX-License-Identifier: Apache-2.0
// What tessera launch knows of hosts, of mpirun's options and of its output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "jobs/cli/commands/launch_binding.hpp"
#include "jobs/cli/commands/mpirun_options.hpp"
#include "jobs/cli/commands/mpirun_output.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "jobs/cli/session/host_topology.hpp"
#include "jobs/cli/session/rank_mapping.hpp"
#include "runtime/base/error.hpp"
#include "tests/io/files.hpp"

namespace tessera::jobs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// An environment variable for the length of a scope.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Setting() { unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
};

HostCores host(int ranks, std::vector<int> nodes, int quota = 0, const char* name = "a") {
  return {.host = name, .ranks = ranks, .numa_nodes = std::move(nodes), .quota = quota};
}

std::string policy(const std::vector<HostCores>& hosts, const std::string& unit = "slot") {
  return choose_mapping(hosts, unit).policy;
}

TEST(RankMapping, GivesAllCoresToTheRanks) {
  EXPECT_EQ(policy({host(1, {2})}), "slot:PE=2");
  EXPECT_EQ(policy({host(2, {64})}), "slot:PE=32");
  EXPECT_EQ(policy({host(2, {7})}), "slot:PE=3");
  EXPECT_EQ(policy({host(8, {8})}), "slot:PE=1");
  EXPECT_EQ(policy({host(1, {16, 16})}), "slot:PE=32") << "one rank alone has all nodes";
}

TEST(RankMapping, KeepsRanksWithinNumaNodes) {
  EXPECT_EQ(policy({host(2, {4, 4})}), "slot:PE=4");
  EXPECT_EQ(policy({host(3, {8, 8})}), "slot:PE=4") << "5 cores each: the second rank would be on both nodes";
  EXPECT_EQ(policy({host(2, {4, 4, 4, 4})}), "slot:PE=8") << "two whole nodes each";
  EXPECT_EQ(policy({host(2, {4, 4, 4})}), "slot:PE=4") << "6 would be a node and a half";
  EXPECT_EQ(policy({host(3, {5, 5})}), "numa:PE=2") << "the third pair of consecutive cores is on both nodes";
  EXPECT_EQ(policy({host(4, {7, 7})}), "numa:PE=3");
  EXPECT_EQ(policy({host(2, {6, 2})}), "slot:PE=3") << "nodes of which a control group has parts";
}

TEST(RankMapping, TakesTheHostWithTheFewestCoresForItsRanks) {
  EXPECT_EQ(policy({host(2, {16}), host(2, {8}, 0, "b")}), "slot:PE=4");
  EXPECT_EQ(policy({host(4, {16}), host(1, {8}, 0, "b")}), "slot:PE=4");
  EXPECT_EQ(policy({host(2, {16, 16})}, "ppr:2:node"), "ppr:2:node:PE=16");
  EXPECT_EQ(policy({host(3, {5, 5})}, "ppr:3:node"), "ppr:3:node:PE=1") << "mpirun deals no nodes by ppr";
}

TEST(RankMapping, IsRefusedWhereCoresAreFewerThanRanks) {
  const RankMapping few = choose_mapping({host(2, {8}), host(5, {2}, 0, "small")}, "slot");
  EXPECT_EQ(few.policy, "");
  EXPECT_EQ(few.refused, "small has 2 cores for 5 ranks");
  EXPECT_EQ(choose_mapping({host(2, {8}, 1)}, "slot").refused, "a has 1 core by its control group for 2 ranks");
  EXPECT_EQ(policy({host(2, {32}, 8)}), "slot:PE=4") << "time on 8 cores of 32";
  EXPECT_EQ(choose_mapping({}, "slot").refused, "the cores of the hosts are not known");
}

TEST(RankMapping, ReadsWhatRanksPrint) {
  const std::string a = host_line(host(1, {4, 3}, 2)), b = host_line(host(1, {8}, 0, "b"));
  const std::vector<HostCores> hosts = read_host_lines("Warning: a banner\n" + a + b + a + "tessera-host\n");
  ASSERT_EQ(hosts.size(), 2u);
  EXPECT_EQ(hosts[0].host + std::to_string(hosts[0].ranks), "a2");
  EXPECT_EQ(hosts[0].quota, 2);
  EXPECT_THAT(hosts[0].numa_nodes, ElementsAre(4, 3));
  EXPECT_EQ(hosts[1].host + std::to_string(hosts[1].ranks), "b1");
}

TEST(RankMapping, KnowsTheNumaNodesOfAHost) {
  const auto nodes = [](const char* synthetic) {
    const Setting variable("HWLOC_SYNTHETIC", synthetic);
    return HostTopology().cores_of_numa_nodes();
  };
  EXPECT_THAT(nodes("pack:2 numa:2 core:4 pu:2"), ElementsAre(4, 4, 4, 4));
  EXPECT_THAT(nodes("numa:1 pack:2 core:3 pu:1"), ElementsAre(6));
  EXPECT_THAT(nodes("[numa] pack:2 [numa] [numa] core:2 pu:1"), ElementsAre(2, 2)) << "DRAM and HBM of a package";
}

TEST(CpuQuota, IsRoundedUp) {
  EXPECT_EQ(cpu_quota("max 100000"), 0);
  EXPECT_EQ(cpu_quota("-1 100000"), 0);
  EXPECT_EQ(cpu_quota(""), 0);
  EXPECT_EQ(cpu_quota("200000 100000"), 2);
  EXPECT_EQ(cpu_quota("250000 100000"), 3);
  EXPECT_EQ(cpu_quota("1000 100000"), 1);
}

MpirunOptions read(const std::vector<std::string>& words, std::vector<const char*> environment = {}) {
  environment.push_back(nullptr);
  return read_mpirun_options(words, const_cast<char* const*>(environment.data()));
}

TEST(MpirunOptions, SayWhoBinds) {
  EXPECT_FALSE(read({"-n", "2", "--oversubscribe", "-x", "A=1", "--mca", "btl", "self,vader"}).binds);
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--bind-to", "none"},
                                                {"-map-by", "node"},
                                                {"--use-hwthread-cpus"},
                                                {"-rf", "ranks"},
                                                {"-mca", "rmaps_base_mapping_policy", "node"},
                                                {"--mca", "hwloc_base_binding_policy", "none"},
                                                {"--mca", "hwloc_base_cpu_list", "0,1"}})
    EXPECT_TRUE(read(words).binds) << words[0];
  EXPECT_TRUE(read({"-n", "2"}, {"OMPI_MCA_hwloc_base_binding_policy=none"}).binds);
  EXPECT_TRUE(read({"-n", "2"}, {"OMPI_MCA_rmaps_base_mapping_policy=slot"}).binds);
  EXPECT_FALSE(read({"-n", "2"}, {"OMPI_MCA_rmaps_base_oversubscribe=1", "OMPI_MCA_btl=self"}).binds);
}

TEST(MpirunOptions, OnesThatAreNotKnownAreNamed) {
  EXPECT_EQ(read({"-n", "2", "--tune", "file", "-H", "a"}).unknown, "--tune");
  EXPECT_THAT(read({"-n", "2", "--tune", "file", "-H", "a"}).given,
              ElementsAre("-n", "2", "--tune", "file", "-H", "a"));
  EXPECT_EQ(read({"-n"}).unknown, "-n");
  EXPECT_EQ(read({"--mca", "btl"}).unknown, "--mca");
}

TEST(MpirunOptions, NumbersOfRanksAreAtLeastOne) {
  for (const char* option : {"-n", "--np", "-c", "-N", "-npernode"})
    for (const char* value : {"0", "-1", "two", "2.5", ""})
      EXPECT_THROW((void)read({option, value}), Error) << option << " " << value;
}

TEST(MpirunOptions, AreRepeatedForTheQuery) {
  const MpirunOptions options =
      read({"--np", "4", "--report-bindings", "-N", "2", "--output-filename", "o", "-H", "a"});
  EXPECT_THAT(options.given, ElementsAre("--np", "4", "--report-bindings", "--output-filename", "o", "-H", "a"));
  EXPECT_THAT(options.for_query, ElementsAre("--np", "4", "-H", "a"));
  EXPECT_EQ(options.ranks, "4");
  EXPECT_EQ(options.per_node, 2);
  EXPECT_TRUE(options.names_hosts);
}

TEST(TorchrunVariables, CountRanksWhereNoOptionDoes) {
  const Setting count("NPROC_PER_NODE", "3");
  MpirunOptions alone = read({"--oversubscribe"}), hosts = read({"-H", "a:3,b:3"}), given = read({"-n", "4"}),
                same = read({"-n", "3"}), bound = read({"--map-by", "node"}), job = read({});
  EXPECT_EQ(take_torchrun_variables(alone, false), "");
  EXPECT_THAT(alone.given, ElementsAre("--oversubscribe", "-n", "3"));
  EXPECT_EQ(take_torchrun_variables(hosts, false), "");
  EXPECT_EQ(hosts.per_node, 3);
  EXPECT_EQ(take_torchrun_variables(job, true), "");
  EXPECT_EQ(job.per_node, 3);
  EXPECT_EQ(take_torchrun_variables(given, false), "NPROC_PER_NODE=3 is not read: -n 4 says how many ranks there are");
  EXPECT_EQ(take_torchrun_variables(same, false), "");
  EXPECT_THAT(take_torchrun_variables(bound, false), HasSubstr("other options say where"));
}

TEST(TorchrunVariables, ThatAreNoNumbersAreRefused) {
  MpirunOptions options = read({});
  for (const char* text : {"gpu", "0", "-2", "2.5"}) {
    const Setting count("NPROC_PER_NODE", text);
    EXPECT_THROW((void)take_torchrun_variables(options, false), Error) << text;
  }
  const Setting nodes("NNODES", "2");
  EXPECT_THROW((void)take_torchrun_variables(options, false), Error) << "torchrun starts on every node";
  EXPECT_EQ(take_torchrun_variables(options, true), "");
}

const std::string edge(74, '-');
std::string box(const std::string& text) { return edge + "\n" + text + "\n" + edge + "\n"; }
std::string filtered(MpirunFilter& filter, const std::string& text, std::size_t each) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += each) out += filter.take(text.substr(at, each));
  return out + filter.rest();
}
std::string filtered(const std::string& text) {
  MpirunFilter by_byte, whole;
  const std::string out = filtered(whole, text, text.size());
  EXPECT_EQ(filtered(by_byte, text, 1), out);
  return out;
}

TEST(MpirunFilter, DropsWhatARankHasSaid) {
  const std::string error = "error: --zero_stage 7: expected 0, 1, 2 or 3\n";
  EXPECT_EQ(
      filtered(error + box("Primary job  terminated normally, but 1 process returned\na non-zero exit code.") +
               box("mpirun detected that one or more processes exited with non-zero status, thus causing\nthe job "
                   "to be terminated. The first process to do so was:\n\n  Process name: [[1,1],0]\n  Exit code:  "
                   "  2")),
      error);
  EXPECT_EQ(
      filtered(error + box("MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\nwith errorcode 3.") +
               "[node:12] 1 more process has sent help message help-mpi-api.txt / mpi-abort\n"
               "[node:12] Set MCA parameter \"orte_base_help_aggregate\" to 0 to see all help / error messages\n"),
      error);
  EXPECT_EQ(filtered("mpirun: Forwarding signal 10 to job\nwarning W021: x\n"), "warning W021: x\n");
}

TEST(MpirunFilter, KeepsWhatIsNews) {
  for (const std::string& text :
       {box("There are not enough slots available in the system to satisfy the 5\nslots that were requested"),
        box("mpirun noticed that process rank 1 with PID 0 on node a exited on signal 9 (Killed)."),
        box("mpirun detected that one or more processes exited with non-zero status\n  Exit code:    127"),
        std::string("[node:12] 2 more processes have sent help message help-btl.txt / no-nic\n"
                    "[node:12] Set MCA parameter \"orte_base_help_aggregate\" to 0 to see all help / error messages\n"),
        std::string("-----\nnot mpirun's\n\n"), edge + "\nan unfinished box\n", std::string("no newline"),
        std::string("50 % \r100 % \rdone\n"), edge + "\n" + edge + "\nof a rank\n" + edge,
        edge + "\n\n" + edge + "\nm\n",
        edge + "\n" + box("mpirun noticed that process rank 1 exited on signal 9 (Killed).")})
    EXPECT_EQ(filtered(text), text);
  MpirunFilter asked;
  asked.expect_signals();
  EXPECT_EQ(filtered(asked, box("mpirun noticed that process rank 1 exited on signal 15 (Terminated)."), 7), "");
}

TEST(MpirunFilter, DoesNotHoldBackLinesOfRanks) {
  MpirunFilter filter;
  EXPECT_EQ(filter.take("50 %"), "50 %");
  EXPECT_EQ(filter.take("\r---"), "\r---");
  EXPECT_EQ(filter.take("\n--"), "\n");
  EXPECT_EQ(filter.take("a"), "--a");
}

TEST(MpirunFilter, PassesDashesOfRanksWithTheNextLine) {
  MpirunFilter filter;
  EXPECT_EQ(filter.take("\n" + edge + "\n"), "\n");
  EXPECT_EQ(filter.take("step 1"), edge + "\nstep 1");
  EXPECT_EQ(filter.take("0\n" + edge + "\nstep 11\n"), "0\n" + edge + "\nstep 11\n");
  EXPECT_EQ(filter.take(edge + "\nmpirun det"), "") << "it may be one that is dropped";
  EXPECT_EQ(filter.rest(), edge + "\nmpirun det");
  EXPECT_EQ(filter.take("onated\n"), "onated\n") << "the rest of a line that has begun";
  EXPECT_EQ(filter.take(edge + "\n\n"), edge + "\n\n") << "an empty line begins none";
  EXPECT_EQ(filter.take(edge + "\nThere are not enough slots\n"), edge + "\nThere are not enough slots\n");
}

/// What this process writes to stderr while `body` runs on the write end of a pipe that MpirunOutput reads.
template <class F>
std::string copied(const F& body) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  testing::internal::CaptureStderr();
  {
    MpirunOutput output(ends[0]);  // closes ends[0]
    body(output, ends[1]);
  }
  ::close(ends[1]);
  return testing::internal::GetCapturedStderr();
}
void write_text(int pipe, const std::string& text) {
  EXPECT_EQ(::write(pipe, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

TEST(MpirunOutput, PrintsDashesAfterASecondOfSilence) {
  testing::internal::CaptureStderr();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  MpirunOutput output(ends[0]);
  write_text(ends[1], edge + "\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), edge + "\n") << "mpirun still runs";
  ::close(ends[1]);
}

TEST(MpirunOutput, EndsThoughAProcessGoesOnWriting) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string text = copied([&](MpirunOutput& output, int pipe) {
    std::atomic<bool> writes = true;
    std::thread writer([&] {
      sigset_t broken_pipe;  // the reader may end between two writes
      sigemptyset(&broken_pipe);
      sigaddset(&broken_pipe, SIGPIPE);
      pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
      while (writes && std::chrono::steady_clock::now() - begin < std::chrono::seconds(20)) {
        if (::write(pipe, "x\n", 2) != 2) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    });
    output.finish();
    writes = false;
    writer.join();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_THAT(text, HasSubstr("x\nx\n"));
}

TEST(LaunchQuery, IsAskedToEndBeforeItIsKilled) {
  const test::TempDir folder;
  // Without `of_this_host` and all CPUs no query is made, so this needs both; SIGKILL would leave no file.
  folder.file("mpirun", "#!/bin/sh\ntrap 'touch " + folder.path() + "/ended; exit 0' TERM\ntouch " + folder.path() +
                            "/ready\nwhile :; do sleep 0.05; done\n");
  std::filesystem::permissions(folder.path() + "/mpirun", std::filesystem::perms::owner_all);
  const std::string path = std::getenv("PATH");
  setenv("PATH", (folder.path() + ":" + path).c_str(), 1);
  sigset_t request, before;
  ::sigemptyset(&request);
  ::sigaddset(&request, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &request, &before);
  const pthread_t self = ::pthread_self();
  std::atomic<bool> asked = false;
  std::thread signals([&] {
    for (int i = 0; i < 400 && !std::filesystem::exists(folder.path() + "/ready"); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    asked = std::filesystem::exists(folder.path() + "/ready");
    ::pthread_kill(self, SIGUSR1);
  });
  (void)with_binding({"-n", "1"}, before);
  signals.join();
  const timespec none{};
  (void)::sigtimedwait(&request, nullptr, &none);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  setenv("PATH", path.c_str(), 1);
  if (!asked) GTEST_SKIP() << "no query is made here: this process may run on some CPUs only";
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/ended"));
}

}  // namespace
}  // namespace tessera::jobs
