// SPDX-License-Identifier: Apache-2.0
#pragma once
// --gradient_checkpointing auto: keep_all, none, selective or full, by the memory that a rank may use.

#include <string>
#include <vector>

#include "jobs/cli/options/options.hpp"
#include "runtime/comm/world.hpp"
#include "runtime/plan/recompute_choices.hpp"

namespace tessera::jobs {

[[nodiscard]] bool chooses_recompute(const Options& options);

/// "recompute selective, chosen by --gradient_checkpointing auto | keep_all needs 6.3 GiB, none needs 5.1 GiB,
/// selective needs 3.2 GiB with 8.1% more FLOPs, full needs 2.4 GiB with 24.0% more FLOPs | a rank may use 4.0 GiB |
/// saves 3.1 GiB a rank for 8.1% more FLOPs". `limit` 0: unknown.
[[nodiscard]] std::string recompute_line(const std::vector<plan::RecomputeChoice>& choices, shard::Recompute chosen,
                                         std::uint64_t limit);

/// Collective. With auto, sets the form of checkpointing that is predicted to be the fastest of those that fit on every
/// rank, with a tenth of the memory to spare unless --device_memory says how much there is, and returns recompute_line;
/// otherwise changes nothing and returns "".
std::string choose_recompute(const Options& options, World& world, plan::RunSpec& spec);
/// The same in one process for a run elsewhere: within --device_memory, or, without it, the fastest of all.
std::string choose_recompute(const Options& options, plan::RunSpec& spec);

}  // namespace tessera::jobs
