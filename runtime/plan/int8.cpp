// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/int8.hpp"

#include "runtime/shard/buffer_plan.hpp"

namespace tessera::plan {

shard::Int8Collectives int8_of(const RunPlan& plan, int unit) {
  const RunSpec& spec = plan.spec;
  const Mesh& mesh = spec.strategy.mesh;
  const shard::Compression& wanted = spec.strategy.policy.compression;
  const shard::UnitPolicy policy = plan.layout.policy(unit);
  const auto compressed = [&](AxisSet axes) {
    return !mesh.used(axes).empty() && (wanted.everywhere || spec.topology.spans_nodes(mesh, axes));
  };
  const bool trained = spec.purpose == Purpose::train && plan.layout.trainable(unit);
  const bool gathers = wanted.gathers == shard::Compression::Gathers::all ||
                       (wanted.gathers == shard::Compression::Gathers::frozen && !plan.layout.trainable(unit));
  shard::Int8Collectives int8{.gather = gathers && is_float(policy.param_dtype) && compressed(policy.shard_axes) &&
                                        !spec.topology.in_place(mesh, policy.shard_axes),
                              .reduce_scatter = wanted.gradients && trained && compressed(policy.shard_axes),
                              .all_reduce = wanted.gradients && trained && compressed(policy.replicate_axes)};
  int8.error_feedback = wanted.error_feedback && (int8.reduce_scatter || int8.all_reduce);
  return int8;
}

void check_int8(const RunPlan& plan, const shard::ScheduleInput& input) {
  const shard::ShardPolicy& policy = plan.spec.strategy.policy;
  if (policy.reproducible && policy.compression.any())
    throw Error(ExitCode::usage,
                "reproducible runs have the same bits on any number of ranks, and int8 collectives do not",
                "reproducible, reduce_dtype, gather_dtype",
                "Drop --reproducible, or give --reduce_dtype fp32 and --gather_dtype compute");
  if (policy.compression.gradients && (policy.reduce_dtype != DType::f32 || policy.param_dtype == DType::f16))
    throw Error(ExitCode::usage,
                "gradients of an fp16 run are scaled by a loss scale that changes, and residuals are not",
                "reduce_dtype", "Compute in bf16 or fp32, or give --reduce_dtype fp32");
  // Gathered parameters that are the master weights cannot be replaced by decoded ones.
  for (const shard::UnitInput& of : input.units) {
    const shard::ScheduledUnit unit = shard::scheduled_unit(input, of);
    if (unit.int8.gather && unit.params_resident && !unit.has_separate_masters())
      throw Error(ExitCode::usage,
                  strfmt("unit %s keeps its gathered parameters in %s, and this rank's part of them is its master "
                         "weights, which int8 would round",
                         unit.name.c_str(), name_of(unit.param_dtype)),
                  "gather_dtype",
                  "Shard the parameters and reshard after forward (--zero_stage 3, FULL_SHARD, HYBRID_SHARD), compute "
                  "in bf16, or drop --gather_dtype");
  }
}

}  // namespace tessera::plan
