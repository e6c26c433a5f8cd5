// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/commands/plan_tiers.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "jobs/cli/options/values.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

// Of a rank: what copies of pinned memory reach over PCIe 4.0 x16 (31.5 GB/s in theory), and an eighth of the memory
// bandwidth of a server processor with eight channels of DDR4-3200 (204.8 GB/s).
constexpr double link_bytes_s = 25e9, host_bytes_s = 25e9;

const char* tier_word(shard::Tier tier) {
  return tier == shard::Tier::disk ? "disk" : tier == shard::Tier::host ? "cpu" : "none";
}

}  // namespace

double TierRow::link_s() const {
  return disk > 0 ? 0 : static_cast<double>(std::max(moved.fetched, moved.stored)) / link_bytes_s;
}
double TierRow::host_s() const { return static_cast<double>(moved.updated) / host_bytes_s; }

std::vector<TierRow> tier_rows(const plan::RunPlan& chosen, shard::Reduce offloaded) {
  using shard::Tier;
  constexpr Tier device = Tier::device, host = Tier::host, disk = Tier::disk;
  std::vector<TierRow> rows;
  const shard::ShardPolicy& policy = chosen.spec.strategy.policy;
  const auto add = [&](const char* name, const std::string& options, const shard::StatePlacement& placement,
                       Tier activations = Tier::device) {
    plan::RunSpec spec = chosen.spec;
    const bool same = policy.placement == placement && policy.activations == activations;
    spec.strategy.policy.placement = placement;
    spec.strategy.policy.activations = activations;
    if (placement.grads != Tier::device) spec.strategy.policy.reduce = offloaded;
    const plan::RunPlan& plan = same ? chosen : plan::make_plan(spec);
    rows.push_back({name, options, plan::memory_needed(plan), plan.costs.in[static_cast<int>(Memory::pinned)],
                    plan.costs.in[static_cast<int>(Memory::disk)], plan.costs.moved, same});
  };
  add("resident", "", {});
  add("optimizer on the CPU", "--offload_optimizer cpu", {device, host, host});
  if (policy.shard_params && policy.reshard_after_forward)
    add("and parameters", "--offload_params cpu", {host, host, host});
  const Tier gradients = chosen.spec.device == host_device ? disk : host;  // as plans place them
  add("optimizer on disk", "--offload_optimizer disk", {device, gradients, disk});
  if (policy.shard_params && policy.reshard_after_forward && chosen.spec.device == host_device)
    add("and parameters", "--offload_params disk", {disk, disk, disk});
  add("activations on the CPU", "--offload_activations true", {}, host);
  if (std::ranges::none_of(rows, &TierRow::chosen))
    add("as chosen",
        strfmt("--offload_params %s --offload_optimizer %s%s", tier_word(policy.placement.params),
               tier_word(policy.placement.optimizer), policy.activations == host ? " --offload_activations true" : ""),
        policy.placement, policy.activations);
  return rows;
}

void print_tiers(const std::vector<TierRow>& rows, std::uint64_t device_memory) {
  log::info(
      "tiers of memory: bytes of a rank, what a step moves, and its least seconds at 25 GB/s of the link in each "
      "direction (-: at the speed of the disk) and 25 GB/s of host memory");
  log::info(strfmt("  %-22s%12s%12s%12s%12s%12s%12s%13s%s", "", "computing", "host", "disk", "fetched", "stored",
                   "link", "host update", device_memory > 0 ? "   fits" : ""));
  for (const TierRow& row : rows)
    log::info(strfmt("%c %-22s%12s%12s%12s%12s%12s%12s%11.3g s%s", row.chosen ? '*' : ' ', row.name,
                     human_bytes(row.computing).c_str(), human_bytes(row.host).c_str(), human_bytes(row.disk).c_str(),
                     human_bytes(row.moved.fetched).c_str(), human_bytes(row.moved.stored).c_str(),
                     row.disk > 0 ? "-" : strfmt("%.3g s", row.link_s()).c_str(), row.host_s(),
                     device_memory == 0               ? ""
                     : row.computing <= device_memory ? "    yes"
                                                      : "     no"));
}

nlohmann::ordered_json tiers_json(const std::vector<TierRow>& rows) {
  nlohmann::ordered_json json;
  for (const TierRow& row : rows)
    json.push_back({{"name", row.name},
                    {"options", row.options},
                    {"chosen", row.chosen},
                    {"computing", row.computing},
                    {"host", row.host},
                    {"disk", row.disk},
                    {"fetched", row.moved.fetched},
                    {"stored", row.moved.stored},
                    {"link_s", row.link_s()},
                    {"host_update_s", row.host_s()}});
  return json;
}

}  // namespace tessera::jobs
