// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whether the exact sums of a run (gradient norm, loss) stay within ExactSum's bound.

#include <cstdint>

#include "runtime/comm/mesh.hpp"
#include "runtime/shard/layout.hpp"

namespace tessera::shard {

/// A rank adds to the norm one term for each kernels::norm_block elements of its shard of a unit, carries, adds the
/// units' sums, carries, and adds the sums of the ranks. To the loss it adds one term for each token, carries, and adds
/// the sums of the ranks. Throws Error (usage) if one of these numbers exceeds ExactSum::max_additions. `tokens`: the
/// most tokens of one rank between two norms; 0: the run has no loss. `trains`: the run has a gradient norm.
struct SumBounds {
  const ShardLayout* layout = nullptr;
  Mesh mesh{1, 1};
  std::int64_t tokens = 0;
  bool trains = true;
};
void require_within_bounds(const SumBounds& run);

}  // namespace tessera::shard
