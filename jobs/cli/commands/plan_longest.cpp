// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/commands/plan_longest.hpp"

#include "jobs/cli/commands/plan_axes.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/log.hpp"
#include "runtime/plan/limits.hpp"

namespace tessera::jobs {

std::vector<LongestRow> longest_by_form(const plan::RunSpec& spec, std::size_t device_memory) {
  using shard::Recompute;
  std::vector<LongestRow> rows;
  if (spec.flat_tokens > 0) return rows;
  const auto add = [&](const char* options, Recompute recompute, shard::Tier activations) {
    plan::RunSpec trial = spec;
    trial.strategy.policy.recompute = recompute;
    trial.strategy.policy.activations = activations;
    rows.push_back({options, plan::longest_rows(trial, device_memory)});
  };
  const shard::Tier tier = spec.strategy.policy.activations;
  add("--gradient_checkpointing none", Recompute::none, tier);
  add("--gradient_checkpointing selective", Recompute::selective, tier);
  add("--gradient_checkpointing full", Recompute::full, tier);
  if (tier == shard::Tier::device)
    add("--gradient_checkpointing full --offload_activations true", Recompute::full, shard::Tier::host);
  return rows;
}

void print_longest(const std::vector<LongestRow>& rows, const plan::RunSpec& spec) {
  if (rows.empty()) return;
  const int ranks = spec.row_ranks();
  const std::string shared = exchanges_of(spec);
  log::info(strfmt("longest   max_length that fits, with %ld row%s in a micro-batch%s", spec.batch.micro_batch,
                   spec.batch.micro_batch == 1 ? "" : "s",
                   ranks > 1 ? strfmt(" on %d ranks (%s)", ranks, shared.c_str()).c_str() : ""));
  for (const LongestRow& row : rows) {
    const std::string all =
        row.tokens + std::int64_t{16} * ranks > spec.model->max_tokens
            ? strfmt(", as far as the model has positions (%ld)", spec.model->max_tokens) + spec.model->limit_note()
            : "";
    log::info(strfmt("  %-56s %s", row.options.c_str(), row.tokens > 0 ? std::to_string(row.tokens).c_str() : "none") +
              all);
  }
}

nlohmann::ordered_json longest_json(const std::vector<LongestRow>& rows) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const LongestRow& row : rows) json.push_back({{"options", row.options}, {"max_length", row.tokens}});
  return json;
}

}  // namespace tessera::jobs
