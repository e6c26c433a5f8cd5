// SPDX-License-Identifier: Apache-2.0
#pragma once
// The sharding options: strategy, mesh and policy.

#include "jobs/cli/options/options.hpp"
#include "runtime/shard/policy.hpp"

namespace tessera::jobs {

/// The strategy and its policy, from all sharding options. Throws Error (usage) that names the option and its source.
[[nodiscard]] shard::Strategy strategy_of(const Options& options, int world, int ranks_per_node);

/// Sets the fields of the policy that options set for any strategy.
void apply_policy(const Options& options, shard::ShardPolicy& policy);

}  // namespace tessera::jobs
