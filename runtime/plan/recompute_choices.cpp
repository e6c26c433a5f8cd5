// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/recompute_choices.hpp"

#include <algorithm>

namespace tessera::plan {

/// With what slots are rounded up to.
static std::size_t activations_on_host(const RunPlan& plan) {
  std::vector<ArenaSlot> slots = plan.slots;
  std::erase_if(slots, [](const ArenaSlot& slot) {
    return slot.memory != Memory::pinned || slot.category != Category::activations;
  });
  return planned_memory(slots).total();
}

std::vector<RecomputeChoice> recompute_choices(const RunSpec& spec) {
  std::vector<RecomputeChoice> choices;
  using shard::Recompute;
  for (const auto recompute : {Recompute::keep_all, Recompute::none, Recompute::selective, Recompute::full}) {
    RunSpec trial = spec;
    trial.strategy.policy.recompute = recompute;
    const RunPlan plan = make_plan(trial);
    choices.push_back({recompute, plan.costs, memory_needed(plan), activations_on_host(plan)});
  }
  std::ranges::stable_sort(choices, {}, [](const RecomputeChoice& c) { return c.costs.recompute_flops_per_step; });
  return choices;
}

const RecomputeChoice& choose_recompute(const std::vector<RecomputeChoice>& choices, std::uint64_t limit) {
  const auto fits = std::ranges::find_if(choices, [&](const RecomputeChoice& c) { return c.needed <= limit; });
  return fits != choices.end() ? *fits : *std::ranges::min_element(choices, {}, &RecomputeChoice::needed);
}

}  // namespace tessera::plan
