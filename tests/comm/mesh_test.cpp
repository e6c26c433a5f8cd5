// SPDX-License-Identifier: Apache-2.0
// Mesh and topology, which are pure functions.
#include <gtest/gtest.h>

#include <set>

#include "runtime/base/error.hpp"
#include "runtime/comm/collective_clock.hpp"
#include "runtime/comm/mesh.hpp"
#include "runtime/comm/topology.hpp"
#include "runtime/comm/watchdog.hpp"
#include "tests/comm/costs.hpp"

using namespace tessera;
using test::counters_traffic, test::traffic;

TEST(Mesh, RankIsReplicateTimesShardsPlusShard) {
  const Mesh mesh(2, 3);
  EXPECT_EQ(mesh.world(), 6);
  EXPECT_EQ(mesh.str(), "{replicate 2, shard 3}");
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(mesh.coordinate(rank, Axis::replicate), rank / 3);
    EXPECT_EQ(mesh.coordinate(rank, Axis::shard), rank % 3);
  }
  EXPECT_EQ(mesh.members(4, Axis::shard), (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(mesh.members(4, Axis::replicate), (std::vector<int>{1, 4}));
  EXPECT_THROW(Mesh(0, 3), Error);
  EXPECT_THROW(Mesh(2, -1), Error);
}

TEST(Mesh, EveryGroupHoldsItsMembersAtTheirCoordinates) {
  for (const auto& mesh : {Mesh(1, 1), Mesh(5, 1), Mesh(1, 7), Mesh(3, 4)})
    for (const Axis axis : {Axis::replicate, Axis::shard})
      for (int rank = 0; rank < mesh.world(); ++rank) {
        const auto members = mesh.members(rank, axis);
        ASSERT_EQ(static_cast<int>(members.size()), mesh.size(axis));
        EXPECT_EQ(members[static_cast<std::size_t>(mesh.coordinate(rank, axis))], rank);
      }
}

constexpr AxisSet data_axes = Axis::replicate | Axis::shard;

TEST(AxisSet, IsASetOfAxes) {
  EXPECT_EQ(AxisSet(Axis::shard).str(), "shard");
  EXPECT_EQ((Axis::tensor | Axis::replicate | Axis::shard).str(), "{replicate, shard, tensor}");
  EXPECT_EQ(AxisSet().str(), "{}");
  EXPECT_TRUE(AxisSet().empty());
  EXPECT_EQ(Axis::shard | Axis::replicate | Axis::shard, data_axes);
  EXPECT_TRUE(data_axes.contains(Axis::replicate));
  EXPECT_FALSE(data_axes.contains(Axis::tensor));
}

/// Every set of axes.
std::vector<AxisSet> subsets() {
  std::vector<AxisSet> all;
  for (int bits = 0; bits < 1 << num_axes; ++bits) {
    AxisSet axes;
    for (int a = 0; a < num_axes; ++a)
      if ((bits >> a & 1) != 0) axes = axes | static_cast<Axis>(a);
    all.push_back(axes);
  }
  return all;
}

/// Coordinates along single axes, slowest first, found by counting.
std::vector<std::vector<int>> counted(const std::vector<AxisSize>& axes) {
  std::vector<std::vector<int>> all{{}};
  for (const AxisSize& axis : axes) {
    std::vector<std::vector<int>> longer;
    for (const auto& prefix : all)
      for (int k = 0; k < axis.size; ++k) {
        longer.push_back(prefix);
        longer.back().push_back(k);
      }
    all = longer;
  }
  return all;
}

TEST(Mesh, GroupsAlongAnySetOfAxes) {
  const std::vector<std::vector<AxisSize>> meshes = {
      {{Axis::replicate, 2}, {Axis::shard, 3}, {Axis::tensor, 4}},
      {{Axis::pipeline, 3}, {Axis::replicate, 1}, {Axis::shard, 5}},
      {{Axis::shard, 4}, {Axis::expert, 2}, {Axis::replicate, 3}},  // in another order than Axis
      {{Axis::pipeline, 2}, {Axis::replicate, 2}, {Axis::context, 2}, {Axis::shard, 2}, {Axis::tensor, 2}},
      {{Axis::tensor, 6}},
      {}};
  for (const auto& sizes : meshes) {
    const Mesh mesh(sizes);
    const auto at = counted(sizes);
    ASSERT_EQ(mesh.world(), static_cast<int>(at.size()));
    for (const AxisSet axes : subsets())
      for (int rank = 0; rank < mesh.world(); ++rank) {
        // The group: ranks that agree on all other axes, in rank order.
        std::vector<int> group;
        for (int other = 0; other < mesh.world(); ++other) {
          bool same = true;
          for (std::size_t a = 0; a < sizes.size(); ++a)
            same = same && (axes.contains(sizes[a].axis) ||
                            at[static_cast<std::size_t>(rank)][a] == at[static_cast<std::size_t>(other)][a]);
          if (same) group.push_back(other);
        }
        EXPECT_EQ(mesh.members(rank, axes), group) << mesh.str() << " " << axes.str() << " " << rank;
        ASSERT_EQ(mesh.size(axes), static_cast<int>(group.size()));
        EXPECT_EQ(group[static_cast<std::size_t>(mesh.coordinate(rank, axes))], rank);
        for (std::size_t a = 0; a < sizes.size(); ++a)
          EXPECT_EQ(mesh.coordinate(rank, sizes[a].axis), at[static_cast<std::size_t>(rank)][a]);
      }
    EXPECT_EQ(mesh.size(mesh.axes()), mesh.world());
    EXPECT_EQ(mesh.size(Mesh::data_axes()), mesh.size(Axis::replicate) * mesh.size(Axis::shard));
  }
}

TEST(Mesh, ThreeAxesByHand) {
  const Mesh mesh({{Axis::replicate, 2}, {Axis::shard, 2}, {Axis::tensor, 3}});
  EXPECT_EQ(mesh.str(), "{replicate 2, shard 2, tensor 3}");
  EXPECT_EQ(mesh.axes().str(), "{replicate, shard, tensor}");
  EXPECT_EQ(mesh.members(7, Axis::tensor), (std::vector<int>{6, 7, 8}));
  EXPECT_EQ(mesh.members(7, Axis::shard), (std::vector<int>{7, 10}));
  EXPECT_EQ(mesh.members(7, Axis::replicate), (std::vector<int>{1, 7}));
  EXPECT_EQ(mesh.members(7, data_axes), (std::vector<int>{1, 4, 7, 10}));
  EXPECT_EQ(mesh.members(7, Axis::replicate | Axis::tensor), (std::vector<int>{0, 1, 2, 6, 7, 8}));
  EXPECT_EQ(mesh.members(7, Axis::pipeline), (std::vector<int>{7}));
  EXPECT_EQ(mesh.coordinate(7, data_axes), 2);
  EXPECT_EQ(mesh.coordinate(7, Axis::replicate | Axis::tensor), 4);
  EXPECT_EQ(mesh.coordinate(7, {}), 0);
}

TEST(Mesh, WhatIsNoMeshIsRefused) {
  EXPECT_THROW(Mesh({{Axis::shard, 2}, {Axis::shard, 3}}), Error);
  EXPECT_THROW(Mesh({{Axis::shard, 2}, {Axis::tensor, 0}}), Error);
  EXPECT_THROW(Mesh({{Axis::replicate, 1 << 16}, {Axis::shard, 1 << 16}}), Error);
}

// The group along all axes is the world: it costs what a mesh of one axis costs, and its parts cost what they do alone.
TEST(Topology, GroupsOfSeveralAxesCostWhatTheirRanksCost) {
  const Mesh mesh({{Axis::replicate, 2}, {Axis::shard, 2}, {Axis::tensor, 4}}), flat(1, 16), inner(2, 8);
  for (const Transport transport : {Transport::mpi, Transport::node, Transport::nccl})
    for (const int width : {1, 3, 4, 8, 16}) {
      const Topology t{transport, width};
      EXPECT_EQ(t.in_place(mesh, mesh.axes()), t.in_place(flat, Axis::shard));
      EXPECT_EQ(t.in_place(mesh, Axis::shard | Axis::tensor), t.in_place(inner, Axis::shard));
      for (int rank = 0; rank < 16; ++rank) {
        for (const auto kind : {CollectiveKind::all_gather, CollectiveKind::all_to_all, CollectiveKind::reduce_scatter,
                                CollectiveKind::all_reduce}) {
          EXPECT_EQ(traffic(t, mesh, mesh.axes(), rank, kind, 16000), traffic(t, flat, Axis::shard, rank, kind, 16000));
          EXPECT_EQ(traffic(t, mesh, Axis::shard | Axis::tensor, rank, kind, 16000),
                    traffic(t, inner, Axis::shard, rank, kind, 16000));
        }
        EXPECT_EQ(counters_traffic(t, mesh, mesh.axes(), rank, 7), counters_traffic(t, flat, Axis::shard, rank, 7));
        EXPECT_EQ(staging_bytes(t, mesh, mesh.axes(), rank, 1 << 20),
                  staging_bytes(t, flat, Axis::shard, rank, 1 << 20));
        EXPECT_EQ(transport_bytes(t, mesh, mesh.axes(), rank), transport_bytes(t, flat, Axis::shard, rank));
      }
    }
  // Members 0-3 and 8-11 lie on two nodes of eight, members 0-7 on one.
  const Topology node{Transport::node, 8};
  EXPECT_FALSE(node.in_place(mesh, Axis::replicate | Axis::tensor));
  EXPECT_EQ(traffic(node, mesh, Axis::replicate | Axis::tensor, 0, CollectiveKind::all_gather, 8000),
            (TrafficCount{3000, 4000, 1}));
}

TEST(Watchdog, NamesTheAxesOfAMismatch) {
  std::vector<comm::StatusCopy> statuses(4);
  std::vector<std::string> names;
  for (int r = 0; r < 4; ++r) {
    comm::StatusCopy& status = statuses[static_cast<std::size_t>(r)];
    status.rank = r;
    status.answered = status.responsive = 1;
    comm::RecordCopy& record = status.records[1];
    record.index = 1;
    record.entered = 5;
    record.left = 4;
    record.operation[0] = r == 2 ? 'b' : 'a';
    names.push_back(std::to_string(r));
  }
  const std::string all = comm::diagnose_stragglers(statuses, {{Mesh(2, 2), data_axes}}, names).line;
  EXPECT_NE(all.find("rank 2 is missing"), std::string::npos) << all;
  EXPECT_NE(all.find("collective 5 of the {replicate, shard} axes, where rank 0"), std::string::npos) << all;
  const std::string one = comm::diagnose_stragglers(statuses, {{Mesh(2, 2), Axis::shard}}, names).line;
  EXPECT_NE(one.find("of the shard axis, where rank"), std::string::npos) << one;
}

TEST(Watchdog, RecordsOfLivingCommunicatorsAreNotReplaced) {
  comm::NodeStatus node{};
  std::vector<comm::RankStatus> rows(1);
  comm::Watchdog watchdog(0, 1, 1);
  watchdog.attach(&node, rows.data(), 0, 1);
  std::vector<comm::Record*> records;
  for (int index = 1; index <= comm::max_records; ++index) records.push_back(&watchdog.record(index));
  EXPECT_EQ(std::set(records.begin(), records.end()).size(), records.size());
  EXPECT_THROW((void)watchdog.record(comm::max_records + 1), Error);
  records[6]->released.store(1);
  records[2]->released.store(1);
  EXPECT_EQ(&watchdog.record(comm::max_records + 1), records[2]) << "the oldest one that was released";
  EXPECT_EQ(&watchdog.record(comm::max_records + 2), records[6]);
  EXPECT_THROW((void)watchdog.record(comm::max_records + 3), Error);
  for (int index = 8; index <= comm::max_records; ++index)
    EXPECT_EQ(records[static_cast<std::size_t>(index - 1)]->index.load(), index);
}

TEST(CollectiveClock, StartsWhenTheStreamReachesTheCollective) {
  const comm::CollectiveClock::Time start{};
  const auto at = [&](int seconds) { return start + std::chrono::seconds(seconds); };
  comm::CollectiveClock clock(start);
  EXPECT_EQ(clock.waiting_since(at(1), {}), at(1)) << "nothing is in flight";
  EXPECT_EQ(clock.waiting_since(at(500), {7, false}), at(500)) << "enqueued behind a long step";
  EXPECT_EQ(clock.waiting_since(at(900), {7, false}), at(900));
  EXPECT_EQ(clock.waiting_since(at(901), {7, true}), at(901)) << "reached: it waits from now on";
  EXPECT_EQ(clock.waiting_since(at(940), {7, true}), at(901));
  EXPECT_EQ(clock.waiting_since(at(950), {8, true}), at(950)) << "7 has ended, and the stream is at the next one";
  EXPECT_EQ(clock.waiting_since(at(960), {8, true}), at(950));
  EXPECT_EQ(clock.waiting_since(at(970), {9, false}), at(970));
  EXPECT_EQ(clock.waiting_since(at(980), {}), at(980));
}

TEST(Watchdog, WaitsForRanksThatWork) {
  constexpr std::int64_t timeout = 100;
  std::vector<comm::StatusCopy> statuses(3);
  for (int r = 0; r < 3; ++r) {
    comm::StatusCopy& status = statuses[static_cast<std::size_t>(r)];
    status.rank = r;
    status.answered = status.responsive = 1;
  }
  const comm::Stragglers one{{1}, ""}, two{{1, 2}, ""};
  EXPECT_EQ(comm::extra_wait_ns({{}, ""}, statuses, timeout), 0);
  EXPECT_EQ(comm::extra_wait_ns(one, statuses, timeout), 0) << "it has never worked";
  statuses[1].since_work_ns = 30;
  EXPECT_EQ(comm::extra_wait_ns(one, statuses, timeout), 70);
  EXPECT_EQ(comm::extra_wait_ns(two, statuses, timeout), 0) << "the other one hangs";
  statuses[2].since_work_ns = 60;
  EXPECT_EQ(comm::extra_wait_ns(two, statuses, timeout), 40);
  statuses[2].since_work_ns = 101;
  EXPECT_EQ(comm::extra_wait_ns(two, statuses, timeout), 0);
  statuses[1].responsive = 0;
  EXPECT_EQ(comm::extra_wait_ns(one, statuses, timeout), 0) << "its process is stopped";
}

TEST(Watchdog, WhatIsEnteredAfterLocalWorkHasTheTimeoutFromThenOn) {
  constexpr std::int64_t timeout = 100;
  std::vector<comm::StatusCopy> statuses(3);
  const comm::Stragglers none{{}, "", true}, mismatch{{}, "", false};
  EXPECT_EQ(comm::extra_wait_ns(none, statuses, timeout), 0) << "no rank has ever worked";
  statuses[1].since_work_ns = 30;  // it has just come
  EXPECT_EQ(comm::extra_wait_ns(none, statuses, timeout), 70);
  EXPECT_EQ(comm::extra_wait_ns(mismatch, statuses, timeout), 0);
  statuses[2].since_work_ns = 120;
  EXPECT_EQ(comm::extra_wait_ns(none, statuses, timeout), 70);
  statuses[1].since_work_ns = 100;
  EXPECT_EQ(comm::extra_wait_ns(none, statuses, timeout), 0) << "it hangs";
}

TEST(Topology, InPlaceWhereEveryGroupIsOnOneNode) {
  const Topology node{Transport::node, 4};
  EXPECT_TRUE(node.in_place(Mesh(2, 4), Axis::shard));
  EXPECT_FALSE(node.in_place(Mesh(2, 4), Axis::replicate));
  EXPECT_FALSE(node.in_place(Mesh(1, 8), Axis::shard));
  EXPECT_FALSE(node.in_place(Mesh(4, 3), Axis::shard));  // 3..5 lie on two nodes
  EXPECT_TRUE(node.in_place(Mesh(8, 1), Axis::shard));
  EXPECT_FALSE((Topology{Transport::mpi, 8}).in_place(Mesh(2, 4), Axis::shard));
  EXPECT_TRUE((Topology{Transport::local, 8}).in_place(Mesh(2, 4), Axis::replicate));
  EXPECT_FALSE((Topology{Transport::local, 8, true}).in_place(Mesh(2, 4), Axis::replicate));
}

TEST(Topology, BytesByHand) {
  const auto sent = [](const Topology& t, const Mesh& m, int rank, CollectiveKind kind) {
    return traffic(t, m, Axis::shard, rank, kind, 8000);
  };
  using Kind = CollectiveKind;
  // Eight ranks, chunks of 1000. mpi, four to a node: three peers here, four there.
  EXPECT_EQ(sent({Transport::mpi, 4}, Mesh(1, 8), 5, Kind::all_gather), (TrafficCount{3000, 4000, 1}));
  EXPECT_EQ(sent({Transport::mpi, 4}, Mesh(1, 8), 5, Kind::all_reduce), (TrafficCount{6000, 8000, 1}));
  // One node: a gather moves nothing; in a reduce each rank reads seven peers.
  EXPECT_EQ(sent({Transport::node, 8}, Mesh(1, 8), 5, Kind::all_gather), (TrafficCount{0, 0, 1}));
  EXPECT_EQ(sent({Transport::node, 8}, Mesh(1, 8), 5, Kind::reduce_scatter), (TrafficCount{7000, 0, 1}));
  // Two-level: the node's 4000 bytes cross once; one sum for each of the four ranks of the other node crosses.
  EXPECT_EQ(sent({Transport::node, 4}, Mesh(1, 8), 4, Kind::all_gather), (TrafficCount{3000, 4000, 1}));
  EXPECT_EQ(sent({Transport::node, 4}, Mesh(1, 8), 4, Kind::reduce_scatter), (TrafficCount{3000, 4000, 1}));
  EXPECT_EQ(sent({Transport::node, 4}, Mesh(1, 8), 5, Kind::all_gather).across_nodes, 0U);
  // Three members on a node are no subtree: every operand crosses (3 for each of 5 ranks).
  EXPECT_EQ(sent({Transport::node, 3}, Mesh(1, 8), 0, Kind::reduce_scatter).across_nodes, 15000U);
}

/// AxisLoad of one collective on every rank of `mesh`.
AxisLoad load_of(const Topology& topology, const Mesh& mesh, Axis axis, CollectiveKind kind, std::uint64_t bytes) {
  std::vector<TrafficCount> sent;
  for (int rank = 0; rank < mesh.world(); ++rank) sent.push_back(traffic(topology, mesh, axis, rank, kind, bytes));
  return axis_load(sent, topology.ranks_per_node);
}

// 64 ranks, 8 to a node; the buffer of an axis has chunks of 1000 bytes.
TEST(Topology, LoadOfFullShardOn64RanksByHand) {
  using Kind = CollectiveKind;
  const Mesh mesh(1, 64);
  const auto load = [&](const Topology& t, Kind kind) { return load_of(t, mesh, Axis::shard, kind, 64000); };
  // Ring: each of 64 edges carries 63 chunks, and one edge leaves each node.
  const Topology ring{Transport::nccl, 8};
  EXPECT_EQ(load(ring, Kind::all_gather), (AxisLoad{63000, 63000}));
  EXPECT_EQ(load(ring, Kind::reduce_scatter), (AxisLoad{63000, 63000}));
  EXPECT_EQ(load(ring, Kind::all_reduce), (AxisLoad{126000, 126000}));
  EXPECT_EQ(load(ring, Kind::all_to_all), (AxisLoad{63000, 448000}));  // 8 ranks send 56 chunks each to other nodes
  // Two-level: the leader sends its node's 8 chunks to 7 nodes. A rank that is not the leader reads 7 chunks of its
  // node and 56 of the others; in a reduction it reads 7 operands, writes 56 and reads the 7 sums received.
  const Topology levels{Transport::node, 8};
  EXPECT_EQ(load(levels, Kind::all_gather), (AxisLoad{63000, 56000}));
  EXPECT_EQ(load(levels, Kind::reduce_scatter), (AxisLoad{70000, 56000}));
  // mpi: 1, 2 and 4 chunks of the last 1, 2 and 4 ranks of a node, then 8, 16 and 32 of each of its 8 ranks. In a
  // reduction the members of a node add first: sums of 8 chunks for each of 7 nodes leave it.
  EXPECT_EQ(load({Transport::mpi, 8}, Kind::all_gather), (AxisLoad{63000, 469000}));
  EXPECT_EQ(load({Transport::mpi, 8}, Kind::reduce_scatter), (AxisLoad{63000, 56000}));
}

TEST(Topology, LoadOfHybridShardOn64RanksByHand) {
  using Kind = CollectiveKind;
  const Mesh mesh(8, 8);
  for (const Transport transport : {Transport::nccl, Transport::node}) {
    const Topology t{transport, 8};
    // The shard axis stays on its node.
    EXPECT_EQ(load_of(t, mesh, Axis::shard, Kind::reduce_scatter, 8000), (AxisLoad{7000, 0}));
    EXPECT_EQ(load_of(t, mesh, Axis::shard, Kind::all_gather, 8000),
              (AxisLoad{transport == Transport::nccl ? 7000u : 0u, 0}));  // in shared memory it is in place
    // Eight groups side by side, a member on each of 8 nodes: 7 chunks twice from each of a node's 8 ranks.
    EXPECT_EQ(load_of(t, mesh, Axis::replicate, Kind::all_reduce, 8000), (AxisLoad{14000, 112000}));
  }
}

TEST(Topology, LoadOfOneNodeHasNoUplink) {
  using Kind = CollectiveKind;
  for (const auto& [transport, gathered] : {std::pair{Transport::nccl, 7000u}, {Transport::node, 0u}}) {
    EXPECT_EQ(load_of({transport, 8}, Mesh(1, 8), Axis::shard, Kind::all_gather, 8000), (AxisLoad{gathered, 0}));
    EXPECT_EQ(load_of({transport, 8}, Mesh(1, 8), Axis::shard, Kind::reduce_scatter, 8000), (AxisLoad{7000, 0}));
  }
}

TEST(Topology, NcclBuffersByHand) {
  constexpr std::size_t mib = std::size_t{1} << 20;
  const Topology t{Transport::nccl, 8};
  EXPECT_EQ(transport_bytes(t, Mesh(1, 1), Axis::shard, 0), 0u);
  EXPECT_EQ(transport_bytes(t, Mesh(1, 2), Axis::shard, 0), 24 * (10 + 2) * mib);
  EXPECT_EQ(transport_bytes(t, Mesh(1, 8), Axis::shard, 0), 24 * 2 * (10 + 2) * mib);
  EXPECT_EQ(transport_bytes(t, Mesh(1, 64), Axis::shard, 0), 24 * ((10 + 2) + (10 + 10)) * mib);
  EXPECT_EQ(transport_bytes(t, Mesh(8, 8), Axis::replicate, 0), 24 * 2 * (10 + 10) * mib);
}

TEST(Topology, StagingIsBounded) {
  const Topology mpi{Transport::mpi, 1};
  EXPECT_EQ(staging_bytes(mpi, Mesh(1, 1), Axis::shard, 0, 1 << 20), 0U);
  EXPECT_EQ(staging_bytes(mpi, Mesh(1, 4), Axis::shard, 0, 4096), 3072U);
  EXPECT_EQ(staging_bytes(mpi, Mesh(1, 4), Axis::shard, 0, std::uint64_t{1} << 34), std::size_t{8} << 20);
  EXPECT_EQ(staging_bytes({Transport::node, 4}, Mesh(1, 4), Axis::shard, 0, 1 << 20), 0U);
}
