// SPDX-License-Identifier: Apache-2.0
// Each row is a plan of its own: of a model divided so, on a mesh with these axes.
#include "jobs/cli/commands/plan_axes.hpp"

#include <algorithm>
#include <stdexcept>

#include "jobs/cli/commands/plan_head.hpp"
#include "jobs/cli/options/values.hpp"
#include "jobs/cli/session/precision.hpp"
#include "jobs/cli/session/setup.hpp"
#include "jobs/cli/session/strategy.hpp"
#include "jobs/cli/session/trainable.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

/// Rows of a group of ranks in a step, of the group that has the most.
std::int64_t most_rows(const plan::BatchPlan& batch) {
  std::int64_t rows = 0;
  for (int a = 0; a < batch.accumulation; ++a) rows += batch.range(a, 0, batch.global_batch).count;
  return rows;
}

AxesRow axes_row(const plan::RunPlan& plan) {
  const plan::RunSpec& spec = plan.spec;
  const double step = plan.costs.flops_per_step + plan.costs.recompute_flops_per_step;
  return {.context = spec.context_ranks(),
          .tensor = spec.tensor_ranks(),
          .micro_batch = spec.batch.micro_batch,
          .costs = plan.costs,
          .load = plan::network_load(plan),
          .needed = plan::memory_needed(plan),
          .flops = step / static_cast<double>(spec.batch.global_batch) * static_cast<double>(most_rows(spec.batch)) /
                   spec.row_ranks()};
}

AxesRow axes_row(const PlanOf& of, const plan::RunPlan& chosen, int context, int tensor) {
  Options options = of.options;
  options.decide("context_parallel_size", std::to_string(context), "compared");
  options.decide("tensor_parallel_size", std::to_string(tensor), "compared");
  plan::RunSpec spec = chosen.spec;
  const int world = spec.strategy.mesh.world();
  AxesRow row{.context = context, .tensor = tensor};
  try {
    const models::Model model =
        make_training_model(options, of.config.text, of.config.path, precision_of(options).compute, of.config.adapter);
    spec.model = &model;
    spec.strategy = strategy_of(options, world, spec.topology.ranks_per_node);
    spec.strategy.policy.recompute = chosen.spec.strategy.policy.recompute;  // auto has chosen it
    const int sharing = context * tensor, groups = world / sharing;
    const std::int64_t global = spec.batch.global_batch, most = (global + groups - 1) / groups;
    spec.batch = plan::solve_batch(global, std::min(spec.batch.micro_batch, most), std::nullopt, {groups, sharing});
    row = axes_row(plan::make_plan(spec));
  } catch (const Error& error) {
    if (error.code() != ExitCode::usage) throw;
    row.refused = error.line();
  } catch (const std::logic_error& error) { row.refused = fault_text(error); }
  return row;
}

std::uint64_t data_bytes(const AxesRow& row) {
  return row.load.shard_axis.busiest_rank + row.load.replicate_axis.busiest_rank;
}
std::uint64_t uplink_bytes(const AxesRow& row) {
  return row.load.shard_axis.node_uplink + row.load.replicate_axis.node_uplink + row.load.exchange.node_uplink;
}

}  // namespace

std::string exchanges_of(const plan::RunSpec& spec) {
  std::string kind = name_of(spec.model->context.kind);
  if (spec.tensor_ranks() == 1) return kind;
  return (spec.context_ranks() > 1 ? kind + " and " : std::string()) + "parts of matrices";
}

std::vector<AxesRow> axes_rows(const PlanOf& of, const plan::RunPlan& chosen) {
  const plan::RunSpec& spec = chosen.spec;
  const int world = spec.strategy.mesh.world(), most = std::min(spec.topology.ranks_per_node, world);
  std::vector<std::pair<int, int>> sizes = {{spec.context_ranks(), spec.tensor_ranks()}};
  for (int tensor = 1; tensor <= most; tensor *= 2)
    for (int context = 1; context * tensor <= most; context *= 2)
      if (world % (context * tensor) == 0) sizes.emplace_back(context, tensor);
  std::ranges::sort(sizes, {}, [](const auto& size) { return std::pair(size.second, size.first); });
  sizes.erase(std::ranges::unique(sizes).begin(), sizes.end());
  std::vector<AxesRow> rows;
  for (const auto& [context, tensor] : sizes) {
    const bool same = context == spec.context_ranks() && tensor == spec.tensor_ranks();
    rows.push_back(same ? axes_row(chosen) : axes_row(of, chosen, context, tensor));
    rows.back().chosen = same;
  }
  return rows;
}

void print_axes(const std::vector<AxesRow>& rows, std::uint64_t device_memory) {
  log::info(
      "axes that share rows or matrices, at the same global batch: rows of a micro-batch; memory of a rank; sent in a "
      "step by the busiest "
      "rank over the data axes, as activations, and by a node to other nodes; FLOPs of a rank");
  std::string head = strfmt("  %8s%8s%6s", "context", "tensor", "rows");
  for (int c = 0; c < plan::num_categories; ++c) head += strfmt("%12s", plan::name_of(static_cast<plan::Category>(c)));
  log::info(head + strfmt("%12s%12s%12s%12s%12s%s", "total", "data axes", "exchange", "node uplink", "FLOPs",
                          device_memory > 0 ? "   fits" : ""));
  for (const AxesRow& row : rows) {
    std::string line = strfmt("%c %8d%8d", row.chosen ? '*' : ' ', row.context, row.tensor);
    if (row.refused.empty()) line += strfmt("%6ld", row.micro_batch);
    if (!row.refused.empty()) {
      log::info(line + "  not possible: " + row.refused);
      continue;
    }
    for (int c = 0; c < plan::num_categories; ++c) line += strfmt("%12s", human_bytes(row.costs.memory[c]).c_str());
    log::info(line + strfmt("%12s%12s%12s%12s%12s%s", human_bytes(row.costs.total).c_str(),
                            bytes_or_dash(data_bytes(row)).c_str(),
                            bytes_or_dash(row.load.exchange.busiest_rank).c_str(),
                            bytes_or_dash(uplink_bytes(row)).c_str(), human_flops(row.flops).c_str(),
                            device_memory == 0            ? ""
                            : row.needed <= device_memory ? "    yes"
                                                          : "     no"));
  }
}

nlohmann::ordered_json axes_json(const std::vector<AxesRow>& rows) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const AxesRow& row : rows) {
    nlohmann::ordered_json of = {{"context", row.context}, {"tensor", row.tensor}, {"chosen", row.chosen}};
    if (row.refused.empty()) {
      for (int c = 0; c < plan::num_categories; ++c)
        of["memory"][plan::name_of(static_cast<plan::Category>(c))] = row.costs.memory[c];
      of["memory"]["total"] = row.costs.total;
      of.update({{"micro_batch", row.micro_batch},
                 {"memory_needed", row.needed},
                 {"data_axes", data_bytes(row)},
                 {"exchange", row.load.exchange.busiest_rank},
                 {"node_uplink", uplink_bytes(row)},
                 {"flops_of_rank", row.flops}});
    } else {
      of["refused"] = row.refused;
    }
    json.push_back(std::move(of));
  }
  return json;
}

}  // namespace tessera::jobs
