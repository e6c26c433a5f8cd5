// SPDX-License-Identifier: Apache-2.0
// `tessera plan`: what a run takes, for every strategy side by side, without MPI, weights or data.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "jobs/cli/commands/commands.hpp"
#include "jobs/cli/commands/plan_axes.hpp"
#include "jobs/cli/commands/plan_head.hpp"
#include "jobs/cli/commands/plan_longest.hpp"
#include "jobs/cli/commands/plan_tiers.hpp"
#include "jobs/cli/session/checkpoint_defaults.hpp"
#include "jobs/cli/session/checkpointing.hpp"
#include "jobs/cli/session/config_warnings.hpp"
#include "jobs/cli/session/default_precision.hpp"
#include "jobs/cli/session/gpu_choices.hpp"
#include "jobs/cli/session/log_lines.hpp"
#include "jobs/cli/session/precision.hpp"
#include "jobs/cli/session/strategy.hpp"
#include "jobs/cli/session/trainable.hpp"
#include "runtime/base/device_info.hpp"
#include "runtime/base/log.hpp"
#include "runtime/plan/gpu_specs.hpp"
#include "runtime/plan/limits.hpp"
#include "runtime/plan/network.hpp"
#include "runtime/shard/context.hpp"
#include "runtime/shard/tensor.hpp"

namespace tessera::jobs {

namespace {

struct Row {
  std::string name, mesh;
  plan::Costs costs;
  plan::NetworkLoad load;
  bool chosen = false;
  std::string refused;  // why the run could not have this strategy; "": it could
};

Row row_of(const plan::RunPlan& plan, bool chosen) {
  return {plan.spec.strategy.name, plan.spec.strategy.mesh.str(), plan.costs, plan::network_load(plan), chosen, ""};
}

/// The row of a strategy that the run could not have.
Row refused_row(const shard::Strategy& strategy, const Error& error) {
  if (error.code() != ExitCode::usage) throw;
  return {.name = strategy.name, .mesh = strategy.mesh.str(), .refused = error.line()};
}

/// The row of a strategy to compare with. What the verifier finds in another strategy's schedule is no fault of the
/// run.
Row row_beside(const plan::RunSpec& spec) {
  try {
    return row_of(plan::make_plan(spec), false);
  } catch (const Error& error) { return refused_row(spec.strategy, error); } catch (const std::logic_error& error) {
    return {.name = spec.strategy.name, .mesh = spec.strategy.mesh.str(), .refused = fault_text(error)};
  }
}

std::vector<Row> all_rows(const Options& options, const plan::RunPlan& chosen) {
  std::vector<Row> rows;
  const int world = chosen.spec.strategy.mesh.world();
  bool found = false;
  for (shard::Strategy& strategy : shard::all_strategies(world, chosen.spec.topology.ranks_per_node)) {
    try {
      strategy =
          shard::with_tensor(shard::with_context(strategy, chosen.spec.context_ranks()), chosen.spec.tensor_ranks());
    } catch (const Error& error) {
      rows.push_back(refused_row(strategy, error));
      continue;
    }
    apply_policy(options, strategy.policy);
    strategy.policy.recompute = chosen.spec.strategy.policy.recompute;  // auto has chosen it
    plan::RunSpec spec = chosen.spec;
    spec.strategy = strategy;
    const bool same = strategy.mesh == chosen.spec.strategy.mesh && strategy.policy == chosen.spec.strategy.policy &&
                      strategy.name == chosen.spec.strategy.name;
    found = found || same;
    rows.push_back(same ? row_of(chosen, true) : row_beside(spec));
  }
  if (!found) rows.insert(rows.begin(), row_of(chosen, true));
  return rows;
}

/// `exchanges`: what they are for.
void print_table(const std::vector<Row>& rows, const std::string& exchanges) {
  std::size_t widest = 26;
  for (const Row& row : rows) widest = std::max(widest, row.mesh.size());
  const auto named = [width = static_cast<int>(widest)](const char* strategy, const std::string& mesh) {
    return strfmt("%-20s %-*s", strategy, width, mesh.c_str());
  };
  std::string head = "  " + named("strategy", "mesh");
  for (int c = 0; c < plan::num_categories; ++c) head += strfmt("%12s", plan::name_of(static_cast<plan::Category>(c)));
  log::info("memory of a rank");
  log::info(head + strfmt("%12s", "total"));
  for (const Row& row : rows) {
    if (!row.refused.empty()) {
      log::info("  " + named(row.name.c_str(), row.mesh) + "  not possible: " + row.refused);
      continue;
    }
    std::string line = (row.chosen ? "* " : "  ") + named(row.name.c_str(), row.mesh);
    for (int c = 0; c < plan::num_categories; ++c) line += strfmt("%12s", human_bytes(row.costs.memory[c]).c_str());
    log::info(line + strfmt("%12s", human_bytes(row.costs.total).c_str()));
  }
  log::info("bytes sent in a step: by the busiest rank, and by a node to other nodes");
  log::info("  " + named("", "") + strfmt("%24s%24s%12s", "over the shard axis", "over the replicate axis", ""));
  log::info("  " + named("strategy", "mesh") +
            strfmt("%12s%12s%12s%12s%12s", "rank", "node uplink", "rank", "node uplink", "collectives"));
  for (const Row& row : rows) {
    if (!row.refused.empty()) continue;
    const AxisLoad &shard = row.load.shard_axis, &replicate = row.load.replicate_axis;
    log::info((row.chosen ? "* " : "  ") + named(row.name.c_str(), row.mesh) +
              strfmt("%12s%12s%12s%12s%12lu", bytes_or_dash(shard.busiest_rank).c_str(),
                     bytes_or_dash(shard.node_uplink).c_str(), bytes_or_dash(replicate.busiest_rank).c_str(),
                     bytes_or_dash(replicate.node_uplink).c_str(),
                     row.costs.shard_axis.collectives + row.costs.replicate_axis.collectives));
  }
  for (const Row& row : rows)
    if (row.chosen && row.costs.exchange.collectives > 0)
      log::info(
          strfmt("exchange  of activations (%s): %s by the busiest rank, %s by a node to other nodes, %lu collectives",
                 exchanges.c_str(), human_bytes(row.load.exchange.busiest_rank).c_str(),
                 bytes_or_dash(row.load.exchange.node_uplink).c_str(), row.costs.exchange.collectives));
}

/// The GPU whose figures are shown: this rank's, or an H200 where there is none to ask; null on the CPU, and where none
/// are known.
const plan::GpuSpec* gpu_of(const plan::RunSpec& spec, bool has_gpu) {
  return spec.device == host_device ? nullptr : plan::find_gpu_spec(has_gpu ? device_name(spec.device) : "H200");
}

/// The least time of a step's GEMMs on that GPU.
double gemm_seconds(const plan::RunSpec& spec, const plan::Costs& costs, const plan::GpuSpec& gpu) {
  return (costs.flops_per_step + costs.recompute_flops_per_step) / spec.strategy.mesh.world() /
         gpu.flops(spec.strategy.policy.param_dtype);
}

std::size_t computed_activations(const plan::RecomputeChoice& c) {
  return c.costs.memory[static_cast<int>(plan::Category::activations)] - c.host_activations;
}

/// A row for each form of gradient checkpointing. Where there are two memories, of each what it holds.
void print_recompute(const std::vector<plan::RecomputeChoice>& choices, const plan::RunSpec& spec, bool has_gpu) {
  const plan::GpuSpec* const gpu = gpu_of(spec, has_gpu);
  const auto pinned = [](const plan::RecomputeChoice& c) { return c.costs.in[static_cast<int>(Memory::pinned)]; };
  const bool two = std::ranges::any_of(choices, [&](const auto& c) { return pinned(c) > 0; });
  const auto columns = [two](const std::string& computing, const std::string& beside) {
    return strfmt("%12s", computing.c_str()) + (two ? strfmt("%12s", beside.c_str()) : "");
  };
  log::info("gradient checkpointing: memory of a rank, and the FLOPs of a step with what is recomputed");
  log::info(strfmt("  %-20s", "") + columns("activations", "on the host") +
            columns(two ? "computing" : "total", "host") +
            strfmt("%12s%12s%12s", "FLOPs", "of none", gpu ? "GEMMs" : ""));
  for (const plan::RecomputeChoice& c : choices) {
    const double flops = c.costs.flops_per_step + c.costs.recompute_flops_per_step;
    std::string line =
        strfmt("%c %-20s", c.recompute == spec.strategy.policy.recompute ? '*' : ' ', name_of(c.recompute)) +
        columns(human_bytes(computed_activations(c)), bytes_or_dash(c.host_activations)) +
        columns(human_bytes(two ? c.needed : c.costs.total), human_bytes(pinned(c))) +
        strfmt("%12s%11.1f%%", human_flops(flops).c_str(), 100 * flops / c.costs.flops_per_step);
    if (gpu != nullptr) line += strfmt("%10.3g s", gemm_seconds(spec, c.costs, *gpu));
    log::info(line);
  }
}

nlohmann::ordered_json recompute_json(const std::vector<plan::RecomputeChoice>& choices, const plan::RunSpec& spec,
                                      bool has_gpu) {
  const plan::GpuSpec* const gpu = gpu_of(spec, has_gpu);
  nlohmann::ordered_json rows;
  for (const plan::RecomputeChoice& c : choices) {
    rows.push_back({{"name", name_of(c.recompute)},
                    {"chosen", c.recompute == spec.strategy.policy.recompute},
                    {"activations", computed_activations(c)},
                    {"activations_on_host", c.host_activations},
                    {"memory_needed", c.needed},
                    {"host", c.costs.in[static_cast<int>(Memory::pinned)]},
                    {"recompute_flops_per_step", c.costs.recompute_flops_per_step}});
    if (gpu != nullptr) rows.back()["gemm_s"] = gemm_seconds(spec, c.costs, *gpu);
  }
  return rows;
}

/// within_node, across_nodes: of the first rank.
nlohmann::ordered_json traffic_json(const TrafficCount& count, const AxisLoad& load) {
  return {{"within_node", count.within_node},
          {"across_nodes", count.across_nodes},
          {"busiest_rank", load.busiest_rank},
          {"node_uplink", load.node_uplink},
          {"collectives", count.collectives}};
}

nlohmann::ordered_json row_json(const Row& row) {
  nlohmann::ordered_json json;
  json["strategy"] = row.name;
  json["mesh"] = row.mesh;
  json["chosen"] = row.chosen;
  if (!row.refused.empty()) {
    json["refused"] = row.refused;
    return json;
  }
  for (int c = 0; c < plan::num_categories; ++c)
    json["memory"][plan::name_of(static_cast<plan::Category>(c))] = row.costs.memory[c];
  json["memory"]["total"] = row.costs.total;
  json["shard_axis"] = traffic_json(row.costs.shard_axis, row.load.shard_axis);
  json["replicate_axis"] = traffic_json(row.costs.replicate_axis, row.load.replicate_axis);
  if (row.costs.exchange.collectives > 0) json["exchange"] = traffic_json(row.costs.exchange, row.load.exchange);
  json["flops_per_step"] = row.costs.flops_per_step;
  json["recompute_flops_per_step"] = row.costs.recompute_flops_per_step;
  return json;
}

/// With several micro-batches: what a rank sends in a step, and what it would with the other modes of reduction.
void print_reductions(const plan::RunPlan& chosen) {
  const shard::ShardPolicy& policy = chosen.spec.strategy.policy;
  if (policy.reduce != shard::Reduce::each || policy.reproducible || chosen.spec.batch.accumulation == 1) return;
  const auto sent = [](const plan::RunPlan& plan) {
    const plan::NetworkLoad load = plan::network_load(plan);
    return load.shard_axis.busiest_rank + load.replicate_axis.busiest_rank;
  };
  const std::uint64_t each = sent(chosen);
  std::string others;
  for (const auto& [mode, word] : {std::pair{shard::Reduce::shard_each, "shard_each"}, {shard::Reduce::last, "last"}}) {
    plan::RunSpec spec = chosen.spec;
    spec.strategy.policy.reduce = mode;
    const plan::RunPlan other = plan::make_plan(spec);
    if (sent(other) >= each) continue;
    others +=
        strfmt("%s %s with --reduce_gradients %s", others.empty() ? "" : ",", human_bytes(sent(other)).c_str(), word);
    if (other.costs.total > chosen.costs.total)
      others += strfmt(" (and %s more memory)", human_bytes(other.costs.total - chosen.costs.total).c_str());
  }
  if (others.empty()) return;
  log::info(strfmt("reduce    a rank sends %s a step with %d micro-batches;%s", human_bytes(each).c_str(),
                   chosen.spec.batch.accumulation, others.c_str()));
}

void print_schedules(const plan::RunPlan& plan) {
  if (!plan.load.list.empty()) log::info("schedule before the first step, verified\n" + shard::text(plan.load));
  log::info("schedule of a training step, verified\n" + shard::text(plan.train));
}

std::vector<TierRow> tiers_of(const Options& options, const plan::RunPlan& chosen) {
  const bool is_default = !options.value("reduce_gradients").decided.empty();
  return tier_rows(chosen, is_default ? shard::Reduce::each : chosen.spec.strategy.policy.reduce);
}

}  // namespace

void print_plan(const PlanOf& of) {
  const Options& options = of.options;
  const ModelConfig& config = of.config;
  const models::Model& model = *of.run.model;
  plan::RunSpec spec = of.run;
  spec.rank = 0;  // whose memory is printed
  const plan::RunPlan chosen = plan::make_plan(spec);
  const std::uint64_t memory = options.has("device_memory") ? options.bytes("device_memory") : 0;
  const bool fits = memory == 0 || plan::memory_needed(chosen) <= memory;
  plan::RunSpec smallest = chosen.spec;  // auto would choose it for a larger micro-batch
  if (chooses_recompute(options)) smallest.strategy.policy.recompute = shard::Recompute::full;
  const std::int64_t largest = memory == 0 ? 0 : plan::largest_micro_batch(smallest, memory);
  const std::vector<LongestRow> longest =
      memory == 0 ? std::vector<LongestRow>() : longest_by_form(chosen.spec, static_cast<std::size_t>(memory));
  const std::vector<plan::RecomputeChoice> recompute = plan::recompute_choices(chosen.spec);
  const std::vector<Row> rows = all_rows(options, chosen);
  const bool compares_axes = spec.strategy.mesh.world() > 1 && (memory > 0 || spec.row_ranks() > 1);
  const std::vector<AxesRow> axes = compares_axes ? axes_rows(of, chosen) : std::vector<AxesRow>();
  if (options.flag("json")) {
    nlohmann::ordered_json json;
    json["model"] = {{"config", config.path},
                     {"parameters", model.num_params()},
                     {"trainable_parameters", num_trainable(model.params)},
                     {"matmul_parameters", model.num_matmul_params()},
                     {"tokens", chosen.spec.tokens}};
    if (num_trainable(model.params) != model.num_params()) json["frozen_params_bytes"] = plan::frozen_bytes(chosen);
    json["compute_dtype"] = name_of(chosen.spec.strategy.policy.param_dtype);
    json["compute_dtype_from"] = precision_source(options);
    json["reduce_dtype"] = reduce_name(chosen.spec.strategy.policy);
    json["world"] = spec.strategy.mesh.world();
    json["ranks_per_node"] = spec.topology.ranks_per_node;
    json["batch"] = {{"global", chosen.spec.batch.global_batch},
                     {"micro", chosen.spec.batch.micro_batch},
                     {"accumulation", chosen.spec.batch.accumulation}};
    for (int u = 0; u < chosen.layout.num_units(); ++u)
      json["units"].push_back({{"name", chosen.layout.unit_name(u)}, {"parameters", chosen.layout.numel(u)}});
    for (const Row& row : rows) json["strategies"].push_back(row_json(row));
    json["gradient_checkpointing"] = recompute_json(recompute, chosen.spec, of.trains);
    json["tiers"] = tiers_json(tiers_of(options, chosen));
    if (memory > 0) json["device_memory"] = memory, json["fits"] = fits, json["largest_micro_batch"] = largest;
    if (!longest.empty()) json["longest_rows"] = longest_json(longest);
    if (compares_axes) json["axes"] = axes_json(axes);
    if (options.flag("print_schedule")) {
      if (!chosen.load.list.empty()) json["load_schedule"] = shard::text(chosen.load);
      json["schedule"] = shard::text(chosen.train);
    }
    log::info(json.dump(2));
  } else {
    print_plan_head(chosen, of);
    print_table(rows, exchanges_of(chosen.spec));
    if (compares_axes) print_axes(axes, memory);
    print_recompute(recompute, chosen.spec, of.trains);
    if (!of.recompute.empty()) log::info(of.recompute);
    print_tiers(tiers_of(options, chosen), memory);
    print_reductions(chosen);
    if (memory > 0) {
      log::info(strfmt("fits      %s of %s a rank: %s | largest micro-batch that fits: %s",
                       human_bytes(plan::memory_needed(chosen)).c_str(), human_bytes(memory).c_str(),
                       fits ? "yes" : "no", largest > 0 ? std::to_string(largest).c_str() : "none"));
      print_longest(longest, chosen.spec);
    }
    if (options.flag("explain")) explain_plan(chosen.spec);
    if (options.flag("print_schedule")) print_schedules(chosen);
  }
  if (fits) return;
  throw Error(
      ExitCode::does_not_fit,
      strfmt("%s needs %s a rank", chosen.spec.strategy.name.c_str(), human_bytes(plan::memory_needed(chosen)).c_str()),
      "--device_memory " + options.text("device_memory") + ": " + options.value("device_memory").source.text,
      largest > 0 ? strfmt("Set per_device_train_batch_size to at most %ld, or shard more", largest)
                  : "Not even a micro-batch of 1 fits: shard more, use --gradient_checkpointing full, "
                    "--offload_activations true, --offload_optimizer cpu, or more ranks");
}

void plan_command(const Call& call) {
  const int world = static_cast<int>(call.options().integer("world_size"));
  Options options = with_checkpoint_defaults(call.options(), world);
  check_options(options);
  Topology topology;
  const bool on_device = options.text("backend") == "cuda";
  if (on_device && !cuda_built)
    throw options.refuse("backend", "this program was built without CUDA, so it cannot plan for a GPU",
                         "Build it with nvcc (docs/cuda.md)");
  topology.staged = on_device && options.text("comm") == "mpi";
  topology.transport = options.text("comm") == "mpi" ? Transport::mpi : on_device ? Transport::nccl : Transport::node;
  topology.ranks_per_node = static_cast<int>(options.optional_integer("ranks_per_node").value_or(world));
  if (topology.ranks_per_node > world) topology.ranks_per_node = world;
  const ModelConfig config = read_model_config(options, nullptr);
  warn_of_config(config);
  decide_precision(options, config, {.on_gpu = on_device, .has_bf16 = on_device || cpu_has_bf16()});
  const Device device = on_device ? Device{Device::Kind::cuda, 0} : host_device;  // the index does not matter for sizes
  decide_reduction(options, world, device);
  choose_attention(options, device);
  const models::Model model =
      make_training_model(options, config.text, config.path, precision_of(options).compute, config.adapter);
  plan::RunSpec spec = run_spec(options, model, world, topology);
  spec.device = device;
  const std::string recompute = choose_recompute(options, spec);
  print_plan({options, config, spec, /*trains=*/false, recompute});
}

}  // namespace tessera::jobs
