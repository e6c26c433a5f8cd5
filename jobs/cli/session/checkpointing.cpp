// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/checkpointing.hpp"

#include <algorithm>

#include "jobs/cli/session/log_lines.hpp"
#include "jobs/cli/session/resources.hpp"
#include "runtime/base/error.hpp"

namespace tessera::jobs {

bool chooses_recompute(const Options& options) { return options.text("gradient_checkpointing") == "auto"; }

namespace {

/// " with 8.1% more FLOPs"; "" if there are none more.
std::string more_flops(const plan::RecomputeChoice& c, const char* word) {
  if (c.costs.recompute_flops_per_step == 0) return {};
  return strfmt(" %s %.1f%% more FLOPs", word, 100 * c.costs.recompute_flops_per_step / c.costs.flops_per_step);
}

}  // namespace

std::string recompute_line(const std::vector<plan::RecomputeChoice>& choices, shard::Recompute chosen,
                           std::uint64_t limit) {
  std::string text = strfmt("recompute %s, chosen by --gradient_checkpointing auto | ", name_of(chosen));
  for (const plan::RecomputeChoice& c : choices) {
    text += strfmt("%s%s needs %s", &c == &choices.front() ? "" : ", ", name_of(c.recompute),
                   human_bytes(c.needed).c_str()) +
            more_flops(c, "with");
  }
  text += limit == 0 ? " | the memory of a rank is unknown: give --device_memory"
                     : " | a rank may use " + human_bytes(limit);
  const auto of = [&](shard::Recompute form) {
    return *std::ranges::find(choices, form, &plan::RecomputeChoice::recompute);
  };
  const plan::RecomputeChoice most = of(shard::Recompute::keep_all), now = of(chosen);
  if (now.needed >= most.needed) return text + " | saves no memory";
  return text + " | saves " + human_bytes(most.needed - now.needed) + " a rank" + more_flops(now, "for");
}

std::string choose_recompute(const Options& options, World& world, plan::RunSpec& spec) {
  if (!chooses_recompute(options)) return "";
  std::vector<plan::RecomputeChoice> choices = plan::recompute_choices(spec);
  for (plan::RecomputeChoice& c : choices)  // ranks may hold shards of different sizes
    c.needed = static_cast<std::size_t>(world.max(static_cast<std::int64_t>(c.needed)));
  std::uint64_t limit = memory_limit(options, world, spec);
  if (!options.has("device_memory")) limit -= limit / 10;  // what is free now is also for files and libraries
  spec.strategy.policy.recompute = plan::choose_recompute(choices, limit).recompute;
  return recompute_line(choices, spec.strategy.policy.recompute, limit);
}

std::string choose_recompute(const Options& options, plan::RunSpec& spec) {
  if (!chooses_recompute(options)) return "";
  const std::uint64_t memory = options.has("device_memory") ? options.bytes("device_memory") : 0;
  const std::vector<plan::RecomputeChoice> choices = plan::recompute_choices(spec);
  spec.strategy.policy.recompute = plan::choose_recompute(choices, memory > 0 ? memory : ~std::uint64_t{0}).recompute;
  return recompute_line(choices, spec.strategy.policy.recompute, memory);
}

}  // namespace tessera::jobs
