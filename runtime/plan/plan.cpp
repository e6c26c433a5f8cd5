// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/plan.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "models/experts.hpp"
#include "models/reference.hpp"
#include "runtime/plan/activations.hpp"
#include "runtime/plan/context.hpp"
#include "runtime/plan/exchanges.hpp"
#include "runtime/plan/int8.hpp"
#include "runtime/plan/network.hpp"
#include "runtime/plan/tensor.hpp"
#include "runtime/plan/units.hpp"
#include "runtime/shard/buffer_plan.hpp"
#include "runtime/shard/builder.hpp"
#include "runtime/shard/manager.hpp"
#include "runtime/shard/memory.hpp"
#include "runtime/shard/replica_segments.hpp"
#include "runtime/shard/sum_bounds.hpp"
#include "runtime/shard/verify.hpp"

namespace tessera::plan {

namespace {

constexpr std::int64_t max_rows = std::numeric_limits<std::int32_t>::max();  // B·T: a dimension of GEMMs
constexpr std::int64_t max_module_executions = std::int64_t{1} << 20;  // modules of a step: the schedule lists each

void check_size(const RunSpec& spec) {
  const BatchPlan& batch = spec.batch;
  const std::int64_t samples = std::max(batch.micro_batch, spec.eval_batch),
                     rows = std::min(samples, max_rows) * spec.sequences;
  if (rows > max_rows / spec.tokens)
    throw Error(ExitCode::usage,
                strfmt("a micro-batch of %ld samples of %ld tokens is too large", samples, spec.tokens),
                "per_device_train_batch_size", strfmt("Give at most %ld tokens per micro-batch", max_rows));
  const auto modules = static_cast<std::int64_t>(spec.model->modules.size());
  if (batch.accumulation > max_module_executions / modules)
    throw Error(ExitCode::usage,
                strfmt("%d accumulation steps of a model of %ld modules are too many", batch.accumulation, modules),
                "gradient_accumulation_steps",
                strfmt("Use at most %ld: give a larger micro-batch or a smaller global batch",
                       max_module_executions / modules));
}

void check(const RunSpec& spec) {
  const int data_ranks = spec.strategy.mesh.size(Mesh::data_axes());
  TESSERA_ASSERT(spec.batch.data_ranks == data_ranks, "a batch for %d data ranks on a mesh of %d",
                 spec.batch.data_ranks, data_ranks);
  const bool trains = spec.purpose == Purpose::train;
  TESSERA_ASSERT(trains || spec.states.empty(), "optimizer states in inference");
  if (trains && spec.device != host_device)
    if (const std::string experts = models::partly_frozen_experts(spec.model->params); !experts.empty())
      throw Error(ExitCode::usage, "only some of " + experts + " are frozen, which is not supported on a GPU",
                  "freeze_parameters", "Freeze or train these weights of all experts of the layer");
  if (trains && spec.model->lora && spec.model->lora->spec.dropout > 0 &&
      std::ranges::any_of(spec.model->lora->modules, &models::AdaptedModule::expert))
    throw Error(
        ExitCode::usage,
        strfmt("the adapters of experts have no dropout, and lora_dropout is %g", spec.model->lora->spec.dropout),
        "lora_dropout", "Add --lora_dropout 0");
  if (trains && std::ranges::none_of(spec.model->params, &ParamSpec::trainable))
    throw Error(ExitCode::usage, "every parameter is frozen: there is nothing to train", "freeze_parameters",
                "Leave a parameter trainable");
  if (spec.tokens < 1 || spec.tokens > spec.model->max_tokens)
    throw Error(ExitCode::usage,
                strfmt("sequence length %ld is not in 1 … %ld, the positions the model has", spec.tokens,
                       spec.model->max_tokens),
                "max_length", "Set --max_length within the model's n_positions");
  if (spec.packed && !spec.model->packs)
    throw Error(ExitCode::usage,
                "models of the family " + spec.model->family +
                    " do not support packing: their attention does not separate documents",
                "packing", "Drop --packing");
  TESSERA_ASSERT((spec.flat_tokens == 0 && spec.flat_eval_tokens == 0) ||
                     (spec.packed && std::min(spec.flat_tokens, spec.flat_eval_tokens) >= spec.tokens),
                 "rows of %ld and %ld end to end, T %ld", spec.flat_tokens, spec.flat_eval_tokens, spec.tokens);
  if (spec.purpose == Purpose::generate &&
      (spec.cache_tokens < spec.tokens || spec.cache_tokens > spec.model->max_tokens))
    throw Error(ExitCode::usage,
                strfmt("prompt and new tokens are %ld together, and the model has %ld positions", spec.cache_tokens,
                       spec.model->max_tokens),
                "max_new_tokens", "Ask for fewer new tokens, or give a shorter prompt");
  check_size(spec);
  check_context(spec);
  check_tensor(spec);
  const shard::ShardPolicy& policy = spec.strategy.policy;
  TESSERA_ASSERT(spec.model->dtype == policy.param_dtype, "a model of %s with parameters of %s",
                 name_of(spec.model->dtype), name_of(policy.param_dtype));
  if (!trains) return;
  if (spec.device != host_device && policy.placement.params == shard::Tier::disk)
    throw Error(ExitCode::usage, "parameters on disk are built for runs without a GPU only", "offload_params",
                "Use --offload_params cpu, with --offload_optimizer disk");
  if (policy.reduce_dtype != DType::f32 && policy.reduce_dtype != policy.param_dtype)
    throw Error(ExitCode::usage,
                strfmt("reduce_dtype %s with parameters of %s is not supported", name_of(policy.reduce_dtype),
                       name_of(policy.param_dtype)),
                "reduce_dtype",
                strfmt("Reduce in fp32, or compute in %s: --mixed_precision", name_of(policy.reduce_dtype)));
  if (spec.strategy.policy.reproducible && !std::has_single_bit(static_cast<unsigned>(data_ranks)))
    throw Error(ExitCode::usage, strfmt("reproducible runs need a power of two of ranks, not %d", data_ranks),
                "reproducible", "Use 1, 2, 4, 8, … ranks, or drop --reproducible");
  if (spec.strategy.policy.reproducible && spec.strategy.policy.reduce == shard::Reduce::last)
    throw Error(ExitCode::usage, "reproducible runs reduce after each micro-batch, not after the last",
                "reproducible, reduce_gradients", "Drop --reduce_gradients last, or --reproducible");
}

/// The fetches, stores and updates on the host of the schedule that the run repeats.
MovedBytes moved_bytes(const RunPlan& plan) {
  MovedBytes moved;
  const shard::Schedule& schedule = plan.main();
  for (const shard::Instruction& in : schedule.list) {
    if ((in.op == shard::Op::fetch || in.op == shard::Op::store) && is_activation(in.state))
      (in.op == shard::Op::fetch ? moved.fetched : moved.stored) +=
          moved_activation_bytes(plan.spec, schedule, in, plan.spec.train_shape());
    if (in.unit < 0) continue;
    const shard::ScheduledUnit& unit = schedule.units[static_cast<std::size_t>(in.unit)];
    const auto numel = static_cast<std::uint64_t>(plan.layout.shard_numel(in.unit));
    std::uint64_t bytes = in.state == shard::StateKind::params
                              ? numel * size_of(shard::fetched_dtype(unit))
                              : numel * sizeof(float) * static_cast<std::uint64_t>(unit.num_accumulators);
    std::uint64_t read_only = 0;  // the gradient that a staged update reads
    if (in.state == shard::StateKind::optimizer) {
      const shard::StagedUpdate staged(unit, static_cast<std::int64_t>(numel), plan.spec.states);
      bytes = staged.bytes;
      if (staged.grad >= 0) read_only = round_to_pages(numel * sizeof(float));
    }
    if (in.op == shard::Op::fetch) moved.fetched += bytes;
    if (in.op == shard::Op::store) moved.stored += bytes - read_only;
    if (in.op != shard::Op::update || !unit.update_on_host) continue;
    moved.updated += numel * (sizeof(float) + 2 * sizeof(float));  // gradient; master weights, read and written
    if (shard::has_host_copy(unit)) moved.updated += numel * size_of(unit.param_dtype);
    for (const StateSpec& state : plan.spec.states) moved.updated += 2 * state.bytes(static_cast<std::int64_t>(numel));
  }
  return moved;
}

/// FLOPs of training beside the model's, `whole`, where ranks divide the modules: of what several of them compute.
double flops_of_several(const models::Model& model, models::BatchShape shape, double whole) {
  double all = 0;
  for (std::size_t m = 0; m < model.modules.size(); ++m)
    all += model.modules[m]->forward_flops(shape) + model.modules[m]->backward_flops(shape, model.wanted(m));
  constexpr double rounding = 1e-9;
  return all - whole > rounding * whole ? all - whole : 0;
}

void price(RunPlan& plan) {
  Costs& costs = plan.costs;
  const RunSpec& spec = plan.spec;
  const MemoryTable memory = planned_memory(plan.slots);
  std::ranges::copy(memory.by_category, costs.memory);
  std::ranges::copy(memory.by_memory, costs.in);
  costs.total = memory.total();
  costs.moved = moved_bytes(plan);
  costs.traffic = step_traffic(plan, spec.rank);
  for (std::size_t g = 0; g < costs.traffic.size(); ++g) {
    TrafficCount& sum = g >= plan.groups.first_exchange         ? costs.exchange
                        : plan.shards_over(static_cast<int>(g)) ? costs.shard_axis
                                                                : costs.replicate_axis;
    sum.within_node += costs.traffic[g].within_node;
    sum.across_nodes += costs.traffic[g].across_nodes;
    sum.collectives += costs.traffic[g].collectives;
  }
  const auto tokens = static_cast<double>(spec.batch.global_batch * spec.sequences) * static_cast<double>(spec.tokens);
  costs.flops_per_step =
      spec.model->train_flops_per_token(spec.tokens) * tokens / (spec.purpose == Purpose::train ? 1 : 3);
  if (spec.kl_passes() > 0)
    costs.flops_per_step += models::forward_flops(*spec.model, tokens, tokens * static_cast<double>(spec.tokens));
  // Nothing before the first backward is recomputed.
  const models::BatchShape shape{spec.batch.global_batch * spec.sequences * spec.row_ranks(),
                                 spec.tokens / spec.row_ranks()};
  if (spec.purpose == Purpose::train && spec.row_ranks() > 1)
    costs.recompute_flops_per_step += flops_of_several(*spec.model, shape, costs.flops_per_step);
  for (int m = first_backward(plan.train.modules); m < static_cast<int>(plan.train.modules.size()); ++m) {
    const models::Module& module = *spec.model->modules[static_cast<std::size_t>(m)];
    const shard::ModuleUse& use = plan.train.modules[static_cast<std::size_t>(m)];
    if (plan.train.recomputes(m))
      costs.recompute_flops_per_step += module.recompute_flops(shape, use.saves && use.saves_again);
    if (spec.purpose == Purpose::train) costs.recompute_flops_per_step += module.repeated_flops(shape);
  }
}

/// Refuses a run whose exact sums could overflow.
void check_sums(const RunPlan& plan) {
  const RunSpec& spec = plan.spec;
  const bool trains = spec.purpose == Purpose::train;
  const std::int64_t trained = trains ? spec.batch.micro_batch * spec.batch.accumulation : 0,
                     evaluated = spec.eval_rows();
  shard::require_within_bounds(
      {.layout = &plan.layout,
       .mesh = spec.strategy.mesh,
       .tokens = spec.purpose == Purpose::generate ? 0 : std::max(trained, evaluated) * spec.sequences * spec.tokens,
       .trains = trains});
}

/// Sums of micro-batches that are reduced together do not depend on the number of ranks only if every sum has the order
/// of a tree over all of them.
void check_reproducible(const RunPlan& plan) {
  const Mesh& mesh = plan.spec.strategy.mesh;
  const auto replicated = [&](int u) { return !mesh.used(plan.layout.policy(u).replicate_axes).empty(); };
  const shard::ShardPolicy& policy = plan.spec.strategy.policy;
  if (!policy.reproducible || policy.reduce != shard::Reduce::shard_each) return;
  for (int u = 0; u < plan.layout.num_units(); ++u)
    if (plan.layout.trainable(u) && replicated(u))
      throw Error(ExitCode::usage,
                  strfmt("reproducible runs reduce unit %s after each micro-batch over all ranks, and with "
                         "--reduce_gradients shard_each its all-reduce follows the last",
                         plan.layout.unit_name(u).c_str()),
                  "reproducible, reduce_gradients", "Drop --reduce_gradients shard_each, or --reproducible");
}

/// Whether to run the checks and the verifier. A search over batch sizes does not: its schedules do not depend on the
/// size.
enum class Proof : bool { none, full };

void build_schedules(RunPlan& plan, shard::ScheduleInput& input) {
  const RunSpec& spec = plan.spec;
  if (spec.purpose != Purpose::generate) input.references = references(*spec.model, plan.units, input.mesh);
  if (spec.purpose == Purpose::train) {
    input.modules = module_uses(*spec.model, plan.units, models::Phase::train, input.mesh);
    for (std::size_t m = 0; m < input.modules.size() && input.policy.recompute == shard::Recompute::selective; ++m)
      if (spec.model->modules[m]->split_saved_bytes(spec.train_shape(), spec.model->dtype).recomputed == 0)
        input.modules[m].recomputable = false;
    mark_saved(spec, input.modules);
    plan.train = shard::build_train(input);
  }
  input.modules = module_uses(*spec.model, plan.units, models::Phase::eval, input.mesh);
  if (spec.purpose != Purpose::generate) plan.eval = shard::build_forward(input, /*with_loss=*/true);
  input.references.clear();
  if (spec.context_ranks() > 1) {  // whose ranks generate nothing
    plan.load = shard::build_load(input);
    return;
  }
  // Generation ends once no rank has an unfinished row, samples of a training run once a rank must stop: `norm` sums
  // how many there are.
  if (spec.tensor_ranks() > 1) input.modules = module_uses(*spec.model, plan.units, models::Phase::logits, input.mesh);
  if (spec.purpose != Purpose::evaluate && spec.model->score < 0)
    plan.logits = shard::build_forward(input, /*with_loss=*/true);
  plan.load = shard::build_load(input);
}

RunPlan build(const RunSpec& spec, Proof proof) {
  check(spec);
  RunPlan plan;
  plan.spec = spec;
  shard::StatePlacement& placement = plan.spec.strategy.policy.placement;
  // A GPU does not write to the disk: its gradients go to host memory, where the update reads them.
  if (spec.device != host_device && placement.grads == shard::Tier::disk) placement.grads = shard::Tier::host;
  plan.units = make_units(*spec.model, plan.spec.strategy);
  const Mesh& mesh = spec.strategy.mesh;
  for (shard::UnitSpec& unit : plan.units)
    if (unit.trainable) unit.granularity = granularity(spec.states);
  plan.layout = shard::ShardLayout(spec.model->params, plan.units, mesh);
  if (spec.purpose == Purpose::train) check_reproducible(plan);

  shard::ScheduleInput input;
  for (int u = 0; u < plan.layout.num_units(); ++u) {
    const bool trains = spec.purpose == Purpose::train;
    input.units.push_back({.name = plan.layout.unit_name(u),
                           .numel = plan.layout.padded_numel(u),
                           .trainable = trains && plan.layout.trainable(u),
                           .storage_dtype = trains ? plan.layout.storage_dtype(u) : plan.layout.policy(u).param_dtype,
                           .policy = plan.layout.policy(u),
                           .params_in_place = spec.topology.in_place(mesh, plan.layout.policy(u).shard_axes),
                           .int8 = int8_of(plan, u)});
  }
  input.mesh = mesh;
  input.policy = plan.spec.strategy.policy;
  input.num_micro = spec.batch.accumulation;
  input.updates_on_host = input.policy.placement.optimizer != shard::Tier::device;
  check_int8(plan, input);
  build_schedules(plan, input);
  if (proof == Proof::full) {
    check_sums(plan);
    check_exchanges(plan);
    for (const auto* schedule : plan.schedules()) shard::require_safe(*schedule, mesh, &plan.load);
  }

  const bool trains = spec.purpose == Purpose::train;
  plan.groups = shard::groups_of(plan.main().units, mesh, plan.main().modules, plan.main().references);
  plan.slots = shard::shard_slots({&plan.layout, plan.schedules(), mesh, plan.groups, spec.topology, spec.rank,
                                   spec.states, largest_exchanges(plan)});
  for (auto& slot : trains ? activation_slots(spec, plan.train) : inference_slots(spec))
    plan.slots.push_back(std::move(slot));
  add_value_slots(plan);
  if (spec.device != host_device) place_on_device(spec, plan.layout.num_units(), plan.slots);
  // In host memory, whatever the device.
  if (spec.snapshot != Snapshot::none) {
    const std::vector<StateSpec> states =
        spec.snapshot == Snapshot::all ? plan.saved_states() : std::vector<StateSpec>();
    plan.slots.push_back({{SlotUse::snapshot},
                          "snapshot",
                          Category::buffers,
                          Placement::own,
                          shard::replica_bytes(plan.layout, states, spec.rank),
                          spec.device != host_device ? Memory::pinned : Memory::host});
  }
  price(plan);
  return plan;
}

}  // namespace

bool RunPlan::shards_over(int group) const {
  return std::ranges::any_of(main().units, [&](const shard::ScheduledUnit& unit) {
    return unit.shard_axes == groups.all[static_cast<std::size_t>(group)];
  });
}

std::vector<StateSpec> RunPlan::saved_states() const {
  std::vector<StateSpec> states = spec.states;
  if (shard::has_residuals(main())) states.push_back(shard::residual_state());
  return states;
}

std::vector<const shard::Schedule*> RunPlan::schedules() const {
  std::vector<const shard::Schedule*> all{&main()};
  for (const auto* schedule : {&train, &eval, &logits, &load})
    if (schedule != all.front() && !schedule->list.empty()) all.push_back(schedule);
  return all;
}

std::size_t frozen_bytes(const RunPlan& plan) {
  std::size_t bytes = 0;
  for (int u = 0; u < plan.layout.num_units(); ++u) {
    if (plan.layout.trainable(u)) continue;
    for (const ArenaSlot& slot : plan.slots)
      if (slot.id == SlotId{SlotUse::master, u} || slot.id == SlotId{SlotUse::params, u}) bytes += slot.bytes;
  }
  return bytes;
}

std::size_t offloaded_bytes(const RunPlan& plan, Category category, Memory memory) {
  std::size_t bytes = 0;
  const auto offloadable = category != Category::buffers && category != Category::comm;
  for (const ArenaSlot& slot : plan.slots)
    if (offloadable && slot.category == category && slot.memory == memory) bytes += slot.bytes;
  return bytes;
}

std::string compare_memory(const RunPlan& plan, const MemoryTable& measured) {
  std::string text;
  for (int c = 0; c < num_categories; ++c) {
    const std::size_t planned = plan.costs.memory[c], found = measured.by_category[c];
    const auto category = static_cast<Category>(c);
    const bool estimated = category == Category::comm && plan.spec.topology.transport == Transport::nccl;
    if (estimated ? found > planned : found != planned)
      text +=
          strfmt("%s%s %zu bytes planned, %zu measured", text.empty() ? "" : "; ", name_of(category), planned, found);
  }
  return text;
}

std::size_t memory_needed(const RunPlan& plan) {
  if (plan.spec.device != host_device) return plan.costs.in[static_cast<int>(Memory::device)];
  // Beside states on disk, staging slots in host memory are part of what a run without a device computes in.
  const bool beside = plan.spec.strategy.policy.placement.optimizer == shard::Tier::host;
  std::vector<ArenaSlot> computing = plan.slots;
  std::erase_if(computing, [&](const ArenaSlot& slot) {
    return slot.memory == Memory::pinned && (beside || slot.category == Category::activations);
  });
  return planned_memory(computing).total();
}

RunPlan make_plan(const RunSpec& spec) { return build(spec, Proof::full); }

std::size_t planned_memory(const RunSpec& spec) { return memory_needed(build(spec, Proof::none)); }

}  // namespace tessera::plan
