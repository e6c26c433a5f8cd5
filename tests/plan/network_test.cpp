// SPDX-License-Identifier: Apache-2.0
// The network load of a training step on 64 ranks, 8 to a node, against sums made here from the model's bytes.

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/comm/world.hpp"
#include "runtime/plan/fingerprint.hpp"
#include "runtime/plan/network.hpp"
#include "runtime/shard/manager.hpp"
#include "tests/base/alloc_counter.hpp"
#include "tests/comm/start_cost.hpp"

namespace tessera::test {
namespace {

constexpr const char* config =
    R"({"model_type": "gpt2", "n_layer": 5, "n_embd": 24, "n_head": 3, "vocab_size": 37, "n_positions": 16, "n_ctx": 16,
  "activation_function": "gelu_new", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0})";

plan::RunPlan plan_of(const char* strategy, const Topology& topology, int world,
                      shard::Reduce reduce = shard::Reduce::each) {
  static const models::Model model = models::make(config, "test");
  plan::RunSpec spec;
  spec.model = &model;
  spec.strategy = shard::make_strategy(strategy, world, 0, topology.ranks_per_node);
  spec.strategy.policy.reduce = reduce;
  spec.topology = topology;
  spec.batch = {.global_batch = 2 * world, .micro_batch = 1, .data_ranks = world, .accumulation = 2};
  spec.tokens = 16;
  return plan::make_plan(spec);
}

struct Bytes {
  std::uint64_t gathered = 0, reduced = 0, counters = 0;  // whole buffers, fp32; one rank's counters of the norm
};
Bytes bytes_of(const plan::RunPlan& plan) {
  Bytes sum;
  for (const auto& instruction : plan.train.list) {
    if (instruction.op == shard::Op::norm)
      sum.counters += 8 * shard::ShardManager::num_norm_counters(plan.layout.num_units(), 0);
    if (instruction.op != shard::Op::gather && instruction.op != shard::Op::reduce_scatter) continue;
    auto& to = instruction.op == shard::Op::gather ? sum.gathered : sum.reduced;
    to += 4 * static_cast<std::uint64_t>(plan.layout.padded_numel(instruction.unit));
  }
  return sum;
}

TEST(PlanNetwork, ZeRO3LoadsEveryUplinkWithAlmostTheFullBuffer) {
  const plan::RunPlan ring = plan_of("3", {Transport::nccl, 8}, 64), levels = plan_of("3", {Transport::node, 8}, 64);
  const Bytes b = bytes_of(ring);
  ASSERT_GT(b.gathered, 0u);
  ASSERT_GT(b.reduced, 0u);
  const AxisLoad on_ring = plan::network_load(ring).shard_axis, on_levels = plan::network_load(levels).shard_axis;
  EXPECT_EQ(on_ring.node_uplink, (b.gathered + b.reduced) / 64 * 63 + b.counters);
  EXPECT_EQ(on_ring.busiest_rank, on_ring.node_uplink);
  EXPECT_EQ(on_levels.node_uplink, (b.gathered + b.reduced) / 64 * 56 + 7 * b.counters);
  // What the first rank sends says nothing of the ring's uplinks: its neighbor is on its node.
  EXPECT_EQ(ring.costs.shard_axis.across_nodes, 0u);
  EXPECT_EQ(plan::network_load(ring).replicate_axis, AxisLoad{});
}

TEST(PlanNetwork, HybridShardSendsItsReplicatedShardsAlone) {
  for (const Transport transport : {Transport::nccl, Transport::node}) {
    const plan::RunPlan plan = plan_of("hybridshard", {transport, 8}, 64);
    const Bytes sent = bytes_of(plan);
    const plan::NetworkLoad load = plan::network_load(plan);
    EXPECT_EQ(load.shard_axis.node_uplink, 0u);
    // 8 groups of 8: each sends 7/8 of its eighth of the buffer, twice. Counters: 7 messages each, or one on the ring.
    const std::uint64_t counters = (transport == Transport::nccl ? 8 : 56) * sent.counters;
    EXPECT_EQ(load.replicate_axis.node_uplink, 2 * sent.reduced / 8 * 7 + counters);
    EXPECT_EQ(load.replicate_axis.busiest_rank * 8, load.replicate_axis.node_uplink);
  }
}

// Of two micro-batches, the shards of one are reduced over the replicas: half the bytes of `each`, and a collective a
// unit less. Inside the nodes nothing changes; with `last`, that is halved too.
TEST(PlanNetwork, ShardEachReducesOverReplicasOnceAStep) {
  for (const Transport transport : {Transport::nccl, Transport::node}) {
    const plan::RunPlan each = plan_of("hybridshard", {transport, 8}, 64),
                        shard_each = plan_of("hybridshard", {transport, 8}, 64, shard::Reduce::shard_each),
                        last = plan_of("hybridshard", {transport, 8}, 64, shard::Reduce::last);
    const std::uint64_t counters = (transport == Transport::nccl ? 8 : 56) * bytes_of(each).counters;
    const plan::NetworkLoad load = plan::network_load(shard_each);
    EXPECT_EQ(load.replicate_axis.node_uplink, bytes_of(each).reduced / 8 * 7 + counters);
    EXPECT_EQ(load.replicate_axis, plan::network_load(last).replicate_axis);
    EXPECT_EQ(load.shard_axis, plan::network_load(each).shard_axis);
    EXPECT_GT(load.shard_axis.busiest_rank, plan::network_load(last).shard_axis.busiest_rank);
    const auto units = static_cast<std::uint64_t>(each.layout.num_units());
    EXPECT_EQ(each.costs.replicate_axis.collectives, 2 * units + 1);
    EXPECT_EQ(shard_each.costs.replicate_axis.collectives, units + 1);
  }
}

TEST(PlanNetwork, OneNodeHasNoUplink) {
  for (const Transport transport : {Transport::nccl, Transport::node, Transport::mpi})
    EXPECT_EQ(plan::network_load(plan_of("3", {transport, 8}, 8)).shard_axis.node_uplink, 0u);
}

TEST(PlanNetwork, NcclBuffersAreOnTheDevice) {
  const plan::RunPlan plan = plan_of("hybridshard", {Transport::nccl, 8}, 64);
  std::size_t bytes = 0;
  for (const ArenaSlot& slot : plan.slots)
    if (slot.placement == Placement::transport && slot.memory == Memory::device) bytes += slot.bytes;
  const Topology& topology = plan.spec.topology;
  EXPECT_EQ(bytes, transport_bytes(topology, Mesh(8, 8), Axis::shard, 0) +
                       transport_bytes(topology, Mesh(8, 8), Axis::replicate, 0));
  EXPECT_GT(bytes, std::size_t{1} << 30);
}

// What a group costs is computed once: memory grows as the ranks, not as their square.
TEST(PlanNetwork, PricesManyRanksInLinearMemory) {
  for (const Transport transport : {Transport::nccl, Transport::node, Transport::mpi})
    for (const char* strategy : {"0", "3", "hybridshard"}) {
      const plan::RunPlan plan = plan_of(strategy, {transport, 8}, 4096);
      const std::int64_t before = alloc_bytes();
      const plan::NetworkLoad load = plan::network_load(plan);
      EXPECT_GT(load.shard_axis.busiest_rank + load.replicate_axis.busiest_rank, 0u);
      EXPECT_LT(alloc_bytes() - before, 4096 * 256) << strategy << " " << name_of(transport);
    }
}

// A rank makes one communicator for each set of axes that a unit uses, however many ranks there are.
TEST(PlanNetwork, CommunicatorsDoNotGrowWithTheWorld) {
  for (const char* strategy : {"0", "1", "3", "hybridshard"}) {
    const auto groups = [&](int world) { return plan_of(strategy, {Transport::node, 8}, world).groups.all.size(); };
    EXPECT_LE(groups(16), 3u) << strategy;
    EXPECT_EQ(groups(1024), groups(16)) << strategy;
  }
}

// The start of 1,024 ranks: four of them plan, all compare its fingerprint. What else they agree on:
// tests/comm/start_test.cpp.
TEST(PlanNetwork, ThousandRanksAgreeOnPlanAndLayout) {
  constexpr int ranks = 1024;
  const std::string expected = plan::fingerprint(plan_of("3", {Transport::node, 8}, ranks));
  StartCost plans, agreement;
  run_local(ranks, [&](World& world) {
    std::string mine = expected;
    if (world.rank() % 256 == 0)
      plans.measure(world, [&] { mine = plan::fingerprint(plan_of("3", {Transport::node, 8}, ranks)); });
    agreement.measure(world, [&] { world.require_equal("the configuration", mine); });
  });
  plans.expect_small("plan", 4, 0);
  agreement.expect_small("plan and layout", ranks, 4);
}

TEST(PlanNetwork, ALayoutThatDiffersIsAnotherFingerprint) {
  plan::RunPlan plan = plan_of("3", {Transport::node, 8}, 16);
  const std::string before = plan::fingerprint(plan);
  EXPECT_EQ(plan::fingerprint(plan_of("3", {Transport::node, 8}, 16)), before);
  const auto& params = plan.spec.model->params;
  std::vector<shard::UnitSpec> units;
  for (int u = 0; u < plan.layout.num_units(); ++u)
    units.push_back({.name = plan.layout.unit_name(u),
                     .params = plan.units[static_cast<std::size_t>(u)].params,
                     .storage_dtype = plan.layout.storage_dtype(u),
                     .policy = plan.layout.policy(u)});
  plan.layout = shard::ShardLayout(params, units, plan.spec.strategy.mesh);
  EXPECT_EQ(plan::fingerprint(plan), before);
  std::ranges::reverse(units[1].params);
  plan.layout = shard::ShardLayout(params, units, plan.spec.strategy.mesh);
  EXPECT_NE(plan::fingerprint(plan), before) << "the same parameters in another order";
}

}  // namespace
}  // namespace tessera::test
