// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tensor axis of a strategy: ranks that have parts of the same matrices, and different tokens of the same rows.

#include "runtime/shard/policy.hpp"

namespace tessera::shard {

/// The strategy with the tensor axis: each group of `ranks` that follow one another has parts of the same matrices.
/// Units of parts are sharded, or replicated, over the other axes, as the strategy says; `replicated` makes the policy
/// of units of replicated parameters. With a context axis it comes after with_context: the groups of the context axis
/// are of ranks with the same parts. Throws Error (usage): `ranks` does not divide the shard group, or, where nothing
/// is sharded, the world.
[[nodiscard]] Strategy with_tensor(Strategy strategy, int ranks);

/// The policy of a unit whose parameters are replicated over the tensor axis: its states are sharded, or replicated,
/// over that axis too.
[[nodiscard]] UnitPolicy replicated(UnitPolicy policy, const Mesh& mesh);

}  // namespace tessera::shard
