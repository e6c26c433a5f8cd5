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

StepTraffic traffic_of(const RunPlan& plan, const Volume& volume, int rank) {
  const RunSpec& spec = plan.spec;
  const Mesh& mesh = spec.strategy.mesh;
  const auto norm = [&](TrafficCount& sum, Axis axis) {
    const auto counters =
        shard::ShardManager::num_norm_counters(axis, plan.layout.num_units(), spec.model->router.num_losses());
    add(sum, counters_traffic(spec.topology, mesh, axis, rank, counters), volume.norms, volume.norms);
  };
  StepTraffic sent;
  if (mesh.size(Axis::shard) > 1) {
    add(sent.shard_axis,
        traffic(spec.topology, mesh, Axis::shard, rank, CollectiveKind::all_gather, volume.gathered_bytes),
        volume.gathers);
    add(sent.shard_axis,
        sum_traffic(spec.topology, mesh, Axis::shard, rank, CollectiveKind::reduce_scatter, volume.reduced_numel,
                    volume.reduce_dtype),
        volume.reductions);
    norm(sent.shard_axis, Axis::shard);
  }
  if (mesh.size(Axis::replicate) > 1) {
    // After a reduction over the shard axis its sums are fp32.
    add(sent.replicate_axis,
        sum_traffic(spec.topology, mesh, Axis::replicate, rank, CollectiveKind::all_reduce, volume.replicated_numel,
                    mesh.size(Axis::shard) > 1 ? DType::f32 : volume.reduce_dtype),
        volume.reductions);
    norm(sent.replicate_axis, Axis::replicate);
  }
  return sent;
}

}  // namespace

StepTraffic step_traffic(const RunPlan& plan, int rank) { return traffic_of(plan, volume_of(plan), rank); }

NetworkLoad network_load(const RunPlan& plan) {
  const Volume volume = volume_of(plan);
  std::vector<TrafficCount> shard_axis, replicate_axis;
  for (int rank = 0; rank < plan.spec.strategy.mesh.world(); ++rank) {
    const StepTraffic sent = traffic_of(plan, volume, rank);
    shard_axis.push_back(sent.shard_axis);
    replicate_axis.push_back(sent.replicate_axis);
  }
  const int width = plan.spec.topology.ranks_per_node;
  return {axis_load(shard_axis, width), axis_load(replicate_axis, width)};
}

}  // namespace tessera::plan
