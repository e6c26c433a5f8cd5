#pragma once
// What a run takes of its machine: cores for its threads, memory for its plan.

#include <string>

#include "jobs/cli/options/options.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "runtime/comm/world.hpp"
#include "runtime/plan/plan.hpp"

namespace tessera::jobs {

/// Collective. Sets this rank's threads as --threads says, and warns where they do not get what they need (W021, W022)
/// and of options without effect (W024).
ThreadAllocation set_rank_threads(const Options& options, World& world);

/// Collective. Throws Error (does_not_fit) where a rank of this plan needs more than it may take. Returns what it may
/// take.
std::uint64_t require_fit(const Options& options, World& world, const plan::RunPlan& plan, const std::string& to_do);

}  // namespace tessera::jobs
