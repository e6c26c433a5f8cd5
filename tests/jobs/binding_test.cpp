// SPDX-License-Identifier: Apache-2.0
// Bindings of ranks in the topologies of other machines, and what is said about them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "jobs/cli/session/cpu_binding.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "runtime/comm/world.hpp"
#include "tests/io/files.hpp"
#include "tests/jobs/variable.hpp"

namespace tessera::jobs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// A rank on `host` that is bound to `cpus`, on hosts like `synthetic`.
RankBinding rank_on(const std::string& synthetic, const std::vector<int>& cpus, const std::string& host = "a") {
  const Variable variable("HWLOC_SYNTHETIC", synthetic);
  const HostTopology topology;
  EXPECT_FALSE(topology.of_this_host()) << "hwloc does not know " << synthetic;
  return binding_of(topology, cpus, host);
}

constexpr const char* two_sockets = "pack:2 numa:1 core:4 pu:1";

TEST(Binding, IsNamedByPackageAndNumaNode) {
  EXPECT_EQ(binding_text(rank_on(two_sockets, {4, 5})), "2 of 8 cores, package 1 (of 2), NUMA node 1 (of 2)");
  EXPECT_EQ(binding_text(rank_on(two_sockets, {3, 4, 5})), "3 of 8 cores, packages 0-1 (of 2), NUMA nodes 0-1 (of 2)");
  EXPECT_EQ(binding_text(rank_on("pack:1 core:1 pu:1", {0})), "1 of 1 core, package 0 (of 1), NUMA node 0 (of 1)");
  // Two threads a core; CPUs of the packages alternately, as many firmwares number them.
  const RankBinding smt = rank_on("pack:2 numa:1 core:2 pu:2(indexes=0,4,2,6,1,5,3,7)", {0, 2, 4, 6});
  EXPECT_EQ(binding_text(smt), "2 of 4 cores, package 0 (of 2), NUMA node 0 (of 2)");
  EXPECT_EQ(smt.host_cpus, 8);
  EXPECT_FALSE(smt.straddles());
}

TEST(Binding, StraddlesPackagesAndNumaNodes) {
  EXPECT_FALSE(rank_on(two_sockets, {0, 1, 2, 3}).straddles());
  EXPECT_TRUE(rank_on(two_sockets, {0, 7}).straddles());
  EXPECT_TRUE(rank_on("numa:1 pack:2 core:2 pu:1", {1, 2}).straddles());            // two packages, one node
  const RankBinding quarters = rank_on("pack:1 numa:4 core:2 pu:1", {2, 3, 4, 5});  // several nodes a package
  EXPECT_TRUE(quarters.straddles());
  EXPECT_THAT(quarters.place.packages, ElementsAre(0));
  EXPECT_THAT(quarters.place.numa_nodes, ElementsAre(1, 2));
}

TEST(Binding, MemoryWithoutCoresOfItsOwnCountsForNothing) {
  // A package has DRAM (nodes 0, 2) and HBM (1, 3); node 4 is as far from all.
  const RankBinding bound = rank_on("[numa] pack:2 [numa] [numa] core:2 pu:1", {0, 1});
  EXPECT_FALSE(bound.straddles());
  EXPECT_THAT(bound.place.numa_nodes, SizeIs(1));
  EXPECT_EQ(bound.host_numa_nodes, 2);
  EXPECT_TRUE(rank_on("[numa] pack:2 [numa] [numa] core:2 pu:1", {1, 2}).straddles());
}

/// Of a rank bound to `cpus` of a host with two packages of two cores, where its control group has the CPUs `allowed`.
RankBinding rank_in_group(const char* allowed, const std::vector<int>& cpus) {
  const auto object = [](const char* type, int number, const char* of, int id, const std::string& inside,
                         const char* node = "0x1") {
    return strfmt(
               "<object type=\"%s\" os_index=\"%d\" cpuset=\"%s\" complete_cpuset=\"%s\" nodeset=\"%s\" "
               "complete_nodeset=\"%s\" gp_index=\"%d\">",
               type, number, of, of, node, node, id) +
           inside + "</object>";
  };
  const auto core = [&](int number, const char* of, const char* node) {
    return object("Core", number, of, 10 + number, object("PU", number, of, 20 + number, "", node), node);
  };
  const test::TempDir directory;
  const std::string path = directory / "host.xml";
  std::ofstream(path) << strfmt(
                             "<?xml version=\"1.0\"?><topology version=\"2.0\"><object type=\"Machine\" os_index=\"0\" "
                             "cpuset=\"0xf\" complete_cpuset=\"0xf\" allowed_cpuset=\"%s\" nodeset=\"0x3\" "
                             "complete_nodeset=\"0x3\" allowed_nodeset=\"0x3\" gp_index=\"1\">",
                             allowed)
                      << object("Package", 0, "0x3", 2,
                                object("NUMANode", 0, "0x3", 3, "") + core(0, "0x1", "0x1") + core(1, "0x2", "0x1"))
                      << object(
                             "Package", 1, "0xc", 4,
                             object("NUMANode", 1, "0xc", 5, "", "0x2") + core(2, "0x4", "0x2") + core(3, "0x8", "0x2"),
                             "0x2")
                      << "</object></topology>";
  const Variable variable("HWLOC_XMLFILE", path);
  return binding_of(HostTopology(), cpus, "a");
}

TEST(Binding, CpusThatTheJobDoesNotHaveDoNotCount) {
  const RankBinding second = rank_in_group("0x7", {2, 3}), both = rank_in_group("0x7", {0, 1, 2, 3});
  EXPECT_EQ(binding_text(second), "1 of 3 cores, package 1 (of 2), NUMA node 1 (of 2)");
  EXPECT_EQ(binding_text(both), "3 of 3 cores, packages 0-1 (of 2), NUMA nodes 0-1 (of 2)");
  EXPECT_EQ(second.host_cpus, 3);
}

TEST(BindingFindings, RanksInControlGroupsOfTheirOwnShareNoCores) {
  RankBinding first = rank_in_group("0x3", {0, 1}), second = rank_in_group("0xc", {2, 3});
  EXPECT_EQ(first.place.cores, second.place.cores);  // each topology counts from 0
  first.bound_threads = {first.place};
  second.bound_threads = {second.place};
  EXPECT_THAT(binding_findings({first, second}), IsEmpty());
  EXPECT_THAT(binding_findings({first, first}), SizeIs(1));
}

TEST(Binding, OfAnotherMachineIsNotKnown) {
  const Variable variable("HWLOC_SYNTHETIC", two_sockets);
  EXPECT_THAT(HostTopology().bound_cpus(), IsEmpty());
  const RankBinding unknown = binding_of(HostTopology(), {}, "a");
  EXPECT_THAT(binding_text(unknown), HasSubstr("HWLOC_THISSYSTEM=1"));
  EXPECT_THAT(binding_findings({unknown, unknown}), IsEmpty());
}

TEST(Binding, OfThisThreadIsTheKernels) {
  EXPECT_EQ(HostTopology().bound_cpus(), affinity_cpus());
  run_local(3, [](World& world) {
    const std::vector<RankBinding> ranks = gather_bindings(world);
    ASSERT_THAT(ranks, SizeIs(world.rank() == 0 ? 3 : 0));
    for (const RankBinding& one : ranks) {
      EXPECT_EQ(one.host, "local");
      EXPECT_EQ(binding_text(one), binding_text(binding_of(HostTopology(), affinity_cpus(), "local")));
      EXPECT_GE(one.place.cores.size(), 1u);
      EXPECT_LE(one.place.cores.size(), affinity_cpus().size());
    }
  });
}

/// The text of the only finding, which has this number.
std::string only(int warning, const std::vector<RankBinding>& ranks) {
  const std::vector<BindingFinding> findings = binding_findings(ranks);
  EXPECT_THAT(findings, SizeIs(1));
  if (findings.size() != 1) return "";
  EXPECT_EQ(findings.front().warning, warning);
  return findings.front().text;
}

TEST(BindingFindings, GoodBindingsAreNotMentioned) {
  EXPECT_THAT(binding_findings({rank_on(two_sockets, {0, 1, 2, 3}), rank_on(two_sockets, {4, 5, 6, 7})}), IsEmpty());
  EXPECT_THAT(binding_findings({rank_on(two_sockets, {0, 1, 2, 3}), rank_on(two_sockets, {4, 5, 6, 7}, "b")}),
              IsEmpty());
  const RankBinding unbound = rank_on("pack:1 core:8 pu:1", {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_THAT(binding_findings({unbound, unbound}), IsEmpty());
  EXPECT_EQ(binding_summary({rank_on(two_sockets, {0}), rank_on(two_sockets, {1})}),
            "rank 0 on 1 of 8 cores, package 0 (of 2), NUMA node 0 (of 2) | every rank within one NUMA node");
}

TEST(BindingFindings, RanksThatStraddleAreNamedOnce) {
  const RankBinding unbound = rank_on(two_sockets, {0, 1, 2, 3, 4, 5, 6, 7}), bound = rank_on(two_sockets, {4, 5});
  std::string text = only(54, {bound, unbound, bound, unbound, unbound});
  EXPECT_THAT(text, HasSubstr("ranks 1,3-4 may run on several NUMA nodes"));
  EXPECT_THAT(text, HasSubstr("rank 1 on a: 8 of 8 cores, packages 0-1 (of 2), NUMA nodes 0-1 (of 2)"));
  EXPECT_THAT(text, HasSubstr("give each rank cores of one: `mpirun --map-by ppr:2:numa:PE=2 --bind-to core`"));
  EXPECT_THAT(text, HasSubstr("`srun --ntasks-per-node=4 --cpus-per-task=2 --cpu-bind=cores`"));
  EXPECT_THAT(binding_summary({bound, unbound}), HasSubstr("package 1 (of 2), NUMA node 1 (of 2) | 1 of 2 ranks on"));

  text = only(54, {unbound});  // fewer ranks than nodes
  EXPECT_THAT(text, HasSubstr("rank 0 may run on several NUMA nodes"));
  EXPECT_THAT(text, HasSubstr("start 2 ranks a host, each on the cores of one: `mpirun --map-by ppr:1:numa:PE=4"));

  text = only(54, {rank_on("numa:1 pack:2 core:2 pu:2", {0, 1, 2, 3, 4, 5, 6, 7})});
  EXPECT_THAT(text, HasSubstr("several packages"));
  EXPECT_THAT(text, HasSubstr("--map-by ppr:1:socket:PE=2"));  // cores
  EXPECT_THAT(text, HasSubstr("--cpus-per-task=4"));           // CPUs, two a core
}

TEST(BindingFindings, SharedCoresAreToldWhereOthersAreUnused) {
  const RankBinding left = rank_on(two_sockets, {0, 1}), right = rank_on(two_sockets, {2, 3});
  const std::string text = only(55, {left, right, left});
  EXPECT_THAT(text, HasSubstr("ranks 0,2 on a have cores in common, and 4 of the host's 8 cores are used by no rank"));
  EXPECT_THAT(binding_findings({left, right, rank_on(two_sockets, {0, 1, 2, 3}, "b")}), IsEmpty());
  // Hyperthreads of a core are one core.
  EXPECT_THAT(only(55, {rank_on("core:2 pu:2", {0}), rank_on("core:2 pu:2", {1})}), HasSubstr("ranks 0-1 on a"));
}

TEST(BindingFindings, MostCoresIdle) {
  const RankBinding one = rank_on(two_sockets, {0}), three = rank_on(two_sockets, {1, 2, 3});
  const std::string text = only(64, {one});
  EXPECT_THAT(text, HasSubstr("the ranks on a may run on 1 of 8 cores, the others are idle"));
  EXPECT_THAT(text, HasSubstr("`mpirun --map-by slot:PE=8 --bind-to core`, `srun --cpus-per-task=8 "));
  EXPECT_THAT(only(64, {three}), HasSubstr("3 of 8"));
  EXPECT_THAT(binding_findings({one, three}), IsEmpty()) << "half of them";
  EXPECT_THAT(only(64, {one, three, rank_on(two_sockets, {7}, "b")}), HasSubstr("on b may run on 1 of 8"));
  EXPECT_THAT(only(64, {rank_on("core:4 pu:2", {0, 1})}), HasSubstr("--cpus-per-task=8")) << "two CPUs a core";
  RankBinding confined = one;  // by a quota of time, or by the batch system
  confined.usable_cores = 2;
  EXPECT_THAT(binding_findings({confined}), IsEmpty());
}

TEST(BindingFindings, ThreadsThatOpenMpBindsToTheSameCores) {
  RankBinding first = rank_on("core:4 pu:2", {0, 1, 2, 3, 4, 5, 6, 7}), second = first;
  const auto core = [](int number) { return rank_on("core:4 pu:2", {2 * number}).place; };
  first.bound_threads = {core(1), core(2)};
  second.bound_threads = {core(2), core(3)};
  EXPECT_THAT(only(56, {first, second}), HasSubstr("binds threads of ranks 0-1 on a to the same cores"));
  EXPECT_THAT(binding_text(first), HasSubstr(", 2 threads bound to cores 1-2"));
  second.bound_threads = {core(3), core(3)};  // of one rank
  EXPECT_THAT(binding_findings({first, second}), IsEmpty());
  second.bound_threads = first.bound_threads, second.host = "b";
  EXPECT_THAT(binding_findings({first, second}), IsEmpty());
}

}  // namespace
}  // namespace tessera::jobs
