// SPDX-License-Identifier: Apache-2.0
#pragma once
// The sharding options: strategy, mesh and policy.

#include <optional>

#include "jobs/cli/options/options.hpp"
#include "models/batch.hpp"
#include "runtime/base/device.hpp"
#include "runtime/shard/policy.hpp"

namespace tessera::jobs {

/// The strategy and its policy, from all sharding options. Throws Error (usage) that names the option and its source.
[[nodiscard]] shard::Strategy strategy_of(const Options& options, int world, int ranks_per_node);

/// --context_parallel_size, of training and its plan; 1 in other commands.
[[nodiscard]] int context_ranks_of(const Options& options);
/// --tensor_parallel_size, the same.
[[nodiscard]] int tensor_ranks_of(const Options& options);
/// How many ranks have the same rows.
[[nodiscard]] int row_ranks_of(const Options& options);
/// --context_parallel_kind; none: auto.
[[nodiscard]] std::optional<models::ContextKind> context_kind_of(const Options& options);

/// Once the precision is decided: where nothing says when gradients are reduced, a run of one rank on a GPU adds those
/// of its micro-batches where backward writes them (--reduce_gradients last). Not with --reproducible, which refuses
/// it, nor with gradients in 16 bits, which would be rounded at each addition, nor where the plan would need more
/// memory: with offloaded gradients.
void decide_reduction(Options& options, int world, Device device);

/// Sets the fields of the policy that options set for any strategy.
void apply_policy(const Options& options, shard::ShardPolicy& policy);

}  // namespace tessera::jobs
