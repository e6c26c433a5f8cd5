#include "runtime/plan/network.hpp"

#include "runtime/shard/manager.hpp"

namespace tessera::plan {

namespace {

/// The collectives of a pass, added up by kind. What a rank sends is linear in them, so that a rank is priced once for
/// each kind and not for each instruction.
struct Volume {
  std::uint64_t gathers = 0, gathered_bytes = 0;  // all_gather over the shard axis
  std::uint64_t reductions = 0;                   // reduce_scatter over the shard axis, all_reduce over the other
  std::uint64_t reduced_numel = 0, replicated_numel = 0;
  DType reduce_dtype = DType::f32;  // of all gradients
  std::uint64_t norms = 0;
};

Volume volume_of(const RunPlan& plan) {
  const shard::Schedule& schedule = plan.main();
  Volume sum;
  for (const auto& instruction : schedule.list) {
    if (instruction.op == shard::Op::norm) ++sum.norms;
    if (instruction.op != shard::Op::gather && instruction.op != shard::Op::reduce) continue;
    const shard::ScheduledUnit& unit = schedule.units[static_cast<std::size_t>(instruction.unit)];
    const auto padded = static_cast<std::uint64_t>(plan.layout.padded_numel(instruction.unit));
    if (instruction.op == shard::Op::gather) {
      ++sum.gathers;
      sum.gathered_bytes += padded * size_of(unit.param_dtype);
    } else {
      ++sum.reductions;
      sum.reduce_dtype = unit.reduce_dtype;
      sum.reduced_numel += padded;
      sum.replicated_numel += static_cast<std::uint64_t>(plan.layout.shard_numel(instruction.unit));
    }
  }
  return sum;
}

void add(TrafficCount& sum, const TrafficCount& more, std::uint64_t collectives, std::uint64_t times = 1) {
  sum.within_node += times * more.within_node;
  sum.across_nodes += times * more.across_nodes;
  sum.collectives += collectives;
}

/// What a member of a group along `axis` sends.
TrafficCount priced(const RunPlan& plan, const Volume& volume, Axis axis, const GroupCosts& group, int member) {
  TrafficCount sent;
  if (axis == Axis::shard) {
    add(sent, group.traffic(member, CollectiveKind::all_gather, volume.gathered_bytes), volume.gathers);
    add(sent, group.sum_traffic(member, CollectiveKind::reduce_scatter, volume.reduced_numel, volume.reduce_dtype),
        volume.reductions);
  } else {
    // After a reduction over the shard axis its sums are fp32.
    const DType terms = plan.spec.strategy.mesh.size(Axis::shard) > 1 ? DType::f32 : volume.reduce_dtype;
    add(sent, group.sum_traffic(member, CollectiveKind::all_reduce, volume.replicated_numel, terms), volume.reductions);
  }
  const auto counters =
      shard::ShardManager::num_norm_counters(axis, plan.layout.num_units(), plan.spec.model->router.num_losses());
  add(sent, group.counters_traffic(member, counters), volume.norms, volume.norms);
  return sent;
}

TrafficCount sent_by(const RunPlan& plan, const Volume& volume, Axis axis, int rank) {
  const Mesh& mesh = plan.spec.strategy.mesh;
  if (mesh.size(axis) == 1) return {};
  return priced(plan, volume, axis, AxisCosts(plan.spec.topology, mesh, axis).group(rank), mesh.coordinate(rank, axis));
}

AxisLoad load_of(const RunPlan& plan, const Volume& volume, Axis axis) {
  const Mesh& mesh = plan.spec.strategy.mesh;
  if (mesh.size(axis) == 1) return {};
  const AxisCosts costs(plan.spec.topology, mesh, axis);
  std::vector<TrafficCount> sent(static_cast<std::size_t>(mesh.world()));
  for (int rank = 0; rank < mesh.world(); ++rank) {
    if (mesh.coordinate(rank, axis) != 0) continue;
    const GroupCosts group = costs.group(rank);
    int member = 0;
    for (const int r : mesh.members(rank, axis))
      sent[static_cast<std::size_t>(r)] = priced(plan, volume, axis, group, member++);
  }
  return axis_load(sent, plan.spec.topology.ranks_per_node);
}

}  // namespace

StepTraffic step_traffic(const RunPlan& plan, int rank) {
  const Volume volume = volume_of(plan);
  return {sent_by(plan, volume, Axis::shard, rank), sent_by(plan, volume, Axis::replicate, rank)};
}

NetworkLoad network_load(const RunPlan& plan) {
  const Volume volume = volume_of(plan);
  return {load_of(plan, volume, Axis::shard), load_of(plan, volume, Axis::replicate)};
}

}  // namespace tessera::plan
