// SPDX-License-Identifier: Apache-2.0
#pragma once
// The context axis of a strategy: ranks that have different tokens of the same rows.

#include "runtime/shard/policy.hpp"

namespace tessera::shard {

/// The axes along which ranks have different tokens, the data axes and context: gradients are sums over these, and
/// states may be sharded over any of them.
inline constexpr AxisSet gradient_axes = Mesh::data_axes() | Axis::context;

/// The strategy with the context axis: each group of `ranks` that follow one another shares rows. States are sharded,
/// or replicated, over these ranks too, as the strategy says. Throws Error (usage): `ranks` does not divide the shard
/// group, or, where nothing is sharded, the world.
[[nodiscard]] Strategy with_context(Strategy strategy, int ranks);

}  // namespace tessera::shard
