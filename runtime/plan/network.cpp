// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/network.hpp"

#include <map>

#include "runtime/plan/exchanges.hpp"
#include "runtime/shard/manager.hpp"

namespace tessera::plan {

namespace {

/// The collectives of one group in a pass, added up by kind. What a rank sends is linear in them, so that a rank is
/// priced once for each kind and not for each instruction.
struct Volume {
  std::uint64_t gathers = 0, gathered_bytes = 0;
  std::uint64_t sums = 0;
  std::map<DType, std::uint64_t> scattered, summed;  // elements of reduce_scatter and of all_reduce, by type
  std::map<CollectiveKind, std::uint64_t> int8;      // encoded bytes of all members, by collective
  std::uint64_t norms = 0;
  // Of exchanges: bytes of all members.
  std::uint64_t exchanges = 0, copied_gathers = 0, swapped = 0;
};

void add_exchange(const RunPlan& plan, const shard::Schedule& schedule, const shard::Instruction& in, Volume& volume) {
  const models::Model& model = *plan.spec.model;
  const std::uint64_t bytes = exchanged_bytes(model, schedule, in, shape_of(plan, schedule));
  const auto members = static_cast<std::uint64_t>(plan.spec.strategy.mesh.size(schedule.exchange_of(in).axes));
  switch (schedule.exchange_kind(in)) {
    case ExchangeKind::copy: return;
    case ExchangeKind::all_gather: volume.copied_gathers += members * bytes; break;
    case ExchangeKind::reduce_scatter: volume.scattered[model.dtype] += bytes / size_of(model.dtype); break;
    case ExchangeKind::all_reduce: volume.summed[model.dtype] += bytes / size_of(model.dtype); break;
    case ExchangeKind::all_to_all: volume.swapped += bytes; break;
  }
  ++volume.exchanges;
}

/// Of one run of a schedule, by group.
void add_volumes(const RunPlan& plan, const shard::Schedule& schedule, std::vector<Volume>& volumes) {
  const auto of = [&](AxisSet axes) -> Volume& {
    return volumes[static_cast<std::size_t>(plan.groups.index_of(axes))];
  };
  for (const auto& instruction : schedule.list) {
    if (instruction.op == shard::Op::norm)
      for (const AxisSet axes : plan.groups.norm) ++of(axes).norms;
    if (instruction.op == shard::Op::exchange)
      if (const int g = plan.groups.exchange_index_of(schedule.exchange_of(instruction).axes); g >= 0)
        add_exchange(plan, schedule, instruction, volumes[static_cast<std::size_t>(g)]);
    if (instruction.unit < 0) continue;
    const shard::ScheduledUnit& unit = schedule.units[static_cast<std::size_t>(instruction.unit)];
    const auto numel = static_cast<std::uint64_t>(unit.numel);
    const auto shard = static_cast<std::uint64_t>(plan.layout.shard_numel(instruction.unit));
    const auto add_int8 = [&](AxisSet axes, CollectiveKind kind, std::uint64_t chunk) {
      of(axes).int8[kind] +=
          comm::int8_group_bytes(static_cast<std::size_t>(plan.spec.strategy.mesh.size(axes)), chunk);
      of(axes).sums += kind == CollectiveKind::all_reduce ? 2 : 1;  // an exchange, a gather, or both
    };
    if (instruction.op == shard::Op::gather && unit.int8.gather) {
      add_int8(unit.shard_axes, CollectiveKind::all_gather, shard);
    } else if (instruction.op == shard::Op::reduce_scatter && unit.int8.reduce_scatter) {
      add_int8(unit.shard_axes, CollectiveKind::reduce_scatter, shard);
    } else if (instruction.op == shard::Op::all_reduce && unit.int8.all_reduce) {
      const auto members = static_cast<std::uint64_t>(plan.spec.strategy.mesh.size(unit.replicate_axes));
      add_int8(unit.replicate_axes, CollectiveKind::all_reduce, shard / members);
    } else if (instruction.op == shard::Op::gather && unit.sharded()) {
      ++of(unit.shard_axes).gathers;
      of(unit.shard_axes).gathered_bytes += numel * size_of(unit.param_dtype);
    } else if (instruction.op == shard::Op::reduce_scatter && unit.sharded()) {
      ++of(unit.shard_axes).sums;
      of(unit.shard_axes).scattered[unit.reduce_dtype] += numel;
    } else if (instruction.op == shard::Op::all_reduce) {
      ++of(unit.replicate_axes).sums;
      // After a reduction over the shard group its sums are fp32.
      of(unit.replicate_axes).summed[unit.sharded() ? DType::f32 : unit.reduce_dtype] += shard;
    }
  }
}

/// Of what the run repeats, by group.
std::vector<Volume> volumes_of(const RunPlan& plan) {
  std::vector<Volume> volumes(plan.groups.all.size());
  add_volumes(plan, plan.main(), volumes);
  for (std::int64_t pass = 0; pass < plan.spec.kl_passes(); ++pass) add_volumes(plan, plan.eval, volumes);
  return volumes;
}

void add(TrafficCount& sum, const TrafficCount& more, std::uint64_t collectives, std::uint64_t times = 1) {
  sum.within_node += times * more.within_node;
  sum.across_nodes += times * more.across_nodes;
  sum.collectives += collectives;
}

/// What a member of a group sends.
TrafficCount priced(const RunPlan& plan, const Volume& volume, const GroupCosts& group, int member) {
  TrafficCount sent;
  add(sent, group.traffic(member, CollectiveKind::all_gather, volume.gathered_bytes), volume.gathers);
  for (const auto& [dtype, numel] : volume.scattered)
    add(sent, group.sum_traffic(member, CollectiveKind::reduce_scatter, numel, dtype), 0);
  for (const auto& [dtype, numel] : volume.summed)
    add(sent, group.sum_traffic(member, CollectiveKind::all_reduce, numel, dtype), 0);
  for (const auto& [kind, bytes] : volume.int8) add(sent, group.int8_traffic(member, kind, bytes), 0);
  if (volume.copied_gathers > 0) add(sent, group.copied_gather(member, volume.copied_gathers), 0);
  if (volume.swapped > 0) add(sent, group.traffic(member, CollectiveKind::all_to_all, volume.swapped), 0);
  sent.collectives += volume.exchanges;
  const auto counters =
      shard::ShardManager::num_norm_counters(plan.layout.num_units(), plan.spec.model->num_extra_sums());
  add(sent, group.counters_traffic(member, counters), volume.sums + volume.norms, volume.norms);
  return sent;
}

/// Adds to `sent`, by rank, what all groups along `axes` send.
void add_all(const RunPlan& plan, const Volume& volume, AxisSet axes, std::vector<TrafficCount>& sent) {
  const Mesh& mesh = plan.spec.strategy.mesh;
  const AxisCosts costs(plan.spec.topology, mesh, axes);
  for (int rank = 0; rank < mesh.world(); ++rank) {
    if (mesh.coordinate(rank, axes) != 0) continue;
    const GroupCosts group = costs.group(rank);
    int member = 0;
    for (const int r : mesh.members(rank, axes))
      add(sent[static_cast<std::size_t>(r)], priced(plan, volume, group, member++), 0);
  }
}

}  // namespace

std::vector<TrafficCount> step_traffic(const RunPlan& plan, int rank) {
  const std::vector<Volume> volumes = volumes_of(plan);
  const Mesh& mesh = plan.spec.strategy.mesh;
  std::vector<TrafficCount> sent;
  for (std::size_t g = 0; g < volumes.size(); ++g) {
    const AxisSet axes = plan.groups.all[g];
    sent.push_back(
        priced(plan, volumes[g], AxisCosts(plan.spec.topology, mesh, axes).group(rank), mesh.coordinate(rank, axes)));
  }
  return sent;
}

NetworkLoad network_load(const RunPlan& plan) {
  const std::vector<Volume> volumes = volumes_of(plan);
  const auto world = static_cast<std::size_t>(plan.spec.strategy.mesh.world());
  std::vector<TrafficCount> shard(world), replicate(world), exchange(world);
  for (std::size_t g = 0; g < volumes.size(); ++g)
    add_all(plan, volumes[g], plan.groups.all[g],
            g >= plan.groups.first_exchange         ? exchange
            : plan.shards_over(static_cast<int>(g)) ? shard
                                                    : replicate);
  const int width = plan.spec.topology.ranks_per_node;
  return {axis_load(shard, width), axis_load(replicate, width), axis_load(exchange, width)};
}

}  // namespace tessera::plan
