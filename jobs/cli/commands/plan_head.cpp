// SPDX-License-Identifier: Apache-2.0
// What `tessera plan` says of a run before its tables, and how it computes its figures.
#include "jobs/cli/commands/plan_head.hpp"

#include "io/checkpoint/checkpoint.hpp"
#include "jobs/cli/options/values.hpp"
#include "jobs/cli/session/default_precision.hpp"
#include "jobs/cli/session/log_lines.hpp"
#include "jobs/cli/session/lora.hpp"
#include "jobs/cli/session/precision.hpp"
#include "jobs/cli/session/trainable.hpp"
#include "runtime/base/device_info.hpp"
#include "runtime/base/log.hpp"
#include "runtime/plan/gpu_specs.hpp"
#include "runtime/plan/limits.hpp"

namespace tessera::jobs {

namespace {

/// "exp_avg 4, exp_avg_sq 4 bytes an element".
std::string states_text(std::span<const StateSpec> states) {
  std::string text;
  for (const StateSpec& state : states)
    text += strfmt("%s%s %g", text.empty() ? "" : ", ", state.name.c_str(), state.element_bytes());
  return text.empty() ? "no state" : text + " bytes an element";
}

/// Where the memory is, and the least time of a step: on this rank's GPU, or on an H200 where there is none to ask.
void print_device(const plan::RunPlan& plan, bool has_gpu) {
  const plan::Costs& costs = plan.costs;
  log::info(strfmt("device    %s of a rank on its GPU, %s pinned on the host",
                   human_bytes(costs.in[static_cast<int>(Memory::device)]).c_str(),
                   human_bytes(costs.in[static_cast<int>(Memory::pinned)]).c_str()));
  const std::string name = has_gpu ? device_name(plan.spec.device) : "NVIDIA H200";
  const plan::GpuSpec* const gpu = plan::find_gpu_spec(name);
  if (gpu == nullptr) return log::info("limits    no published figures of \"" + name + "\" are known");
  const plan::MinimumStepTime least = plan::minimum_step_time(plan, *gpu);
  log::info(
      strfmt("limits    on one %s (%.0f TFLOP/s, %.1f TB/s) a step takes at least %.3g s of GEMMs and %.3g s of memory "
             "traffic of the optimizer",
             name.c_str(), gpu->flops(plan.spec.strategy.policy.param_dtype) * 1e-12, gpu->memory_bytes_s * 1e-12,
             least.gemm_s, least.states_s));
}

/// "units     34 | the largest: embed, 38.6M parameters"
std::string units_line(const shard::ShardLayout& layout) {
  int largest = 0;
  for (int u = 1; u < layout.num_units(); ++u)
    if (layout.numel(u) > layout.numel(largest)) largest = u;
  return strfmt("units     %d | the largest: %s, %s parameters", layout.num_units(), layout.unit_name(largest).c_str(),
                human_count(layout.numel(largest)).c_str());
}

/// "bf16", or "nf4 and bf16" where matrices are quantized.
std::string frozen_types(const models::Model& model) {
  const QuantFormat format = io::quantization_in(model.params);
  return (format == QuantFormat::none ? "" : std::string(name_of(format)) + " and ") + name_of(model.dtype);
}

}  // namespace

void print_plan_head(const plan::RunPlan& plan, const PlanOf& of) {
  const models::Model& model = *plan.spec.model;
  const io::SavedParams saved = saves_only_trainable(of.options) ? io::SavedParams::trainable : io::SavedParams::all;
  const bool all_trainable = num_trainable(model.params) == model.num_params();
  log::info(strfmt(
      "model     %s %s | %s, %s in matmuls | T %ld", model.family.c_str(), of.config.path.c_str(),
      all_trainable ? (human_count(model.num_params()) + " parameters").c_str() : parameters_text(model.params).c_str(),
      human_count(model.num_matmul_params()).c_str(), plan.spec.tokens));
  log::info(strfmt("parallel  %s %s | %d rank%s, %d on a node | transport %s", plan.spec.strategy.name.c_str(),
                   plan.spec.strategy.mesh.str().c_str(), plan.spec.strategy.mesh.world(),
                   plan.spec.strategy.mesh.world() == 1 ? "" : "s", plan.spec.topology.ranks_per_node,
                   name_of(plan.spec.topology.transport)));
  log::info(units_line(plan.layout));
  log::info("precision " + precision_text(plan) + " | " + state_precision(plan.spec.states) + " | " +
            precision_source(of.options));
  log::info("batch     " + batch_line(plan.spec.batch, plan.spec.row_ranks()) +
            reduction_text(plan.spec.batch, of.options.value("reduce_gradients").decided));
  log::info(strfmt("work      %s%s FLOPs a step for the global batch%s", plan.spec.packed ? "at most " : "",
                   human_flops(plan.costs.flops_per_step).c_str(),
                   plan.costs.recompute_flops_per_step > 0
                       ? strfmt(", and %s for what is computed more than once",
                                human_flops(plan.costs.recompute_flops_per_step).c_str())
                             .c_str()
                       : ""));
  if (!all_trainable)
    log::info(strfmt("frozen    %s of a rank's params, kept in %s; no gradients and optimizer states",
                     human_bytes(plan::frozen_bytes(plan)).c_str(), frozen_types(model).c_str()));
  if (plan.spec.device != host_device) print_device(plan, of.trains);
  log::info(strfmt("disk      %s a checkpoint, %s with the model alone",
                   human_bytes(io::state_bytes(model.own_params(), plan.saved_states(), saved)).c_str(),
                   human_bytes(io::state_bytes(model.own_params(), {}, saved)).c_str()));
}

void explain_plan(const plan::RunSpec& spec) {
  std::string text = R"(how the figures are made
  Layout, schedules and arena are those of the run. Memory is that of rank 0.
  params       the fp32 master shard, and gathered units: all of them if parameters are not sharded, else prefetch + 1
               buffers. In shared memory a rank is charged its own part. With --mixed_precision a gathered unit has two
               bytes an element and does not share memory with the master. Of frozen parameters, the shard in the type
               in which the run computes takes the master's place.
  grads        reduced shards (gradient accumulators), and full gradients: of the units in flight, or of all
  optimizer    of the shard: STATES
  activations  what each module saves for backward; with --gradient_checkpointing full the inputs of the blocks, and the
               activations of one block; with selective also the outputs of attention, and the products of the MLPs
  buffers      activations between modules, workspaces, token ids and targets
  comm         staging and scratch of the transport. NCCL's buffers are estimated: 24 channels, per neighbor 10 MiB to
               receive, and to send 2 MiB within the node or 10 MiB to another node
  bytes sent   by the gathers and reductions of the schedule. rank: by the busiest rank, to its own node and to others.
               node uplink: by all ranks of a node to other nodes, which is what its network cards carry. Of a buffer
               gathered over S ranks, L of them on each node, (S-1)/S leaves each node by a ring (NCCL), (S-L)/S by the
               two-level transport (node), L(S-L)/S by mpi. Within a node that shares memory a gather sends nothing.
  FLOPs        6 N_matmul + 12 L H T per token (a multiply-add counts two; attention is not halved for its mask))";
  constexpr std::string_view states = "STATES";
  log::info(text.replace(text.find(states), states.size(), states_text(spec.states)));
}

std::string bytes_or_dash(std::uint64_t bytes) { return bytes == 0 ? "-" : human_bytes(bytes); }

std::string fault_text(const std::logic_error& error) {
  return std::string("a fault of this program: ") + error.what();
}

}  // namespace tessera::jobs
