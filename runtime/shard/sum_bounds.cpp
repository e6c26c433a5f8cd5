// SPDX-License-Identifier: Apache-2.0
#include "runtime/shard/sum_bounds.hpp"

#include "kernels/reduce.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/exact_sum.hpp"

namespace tessera::shard {

void require_within_bounds(const SumBounds& run) {
  constexpr std::int64_t most = ExactSum::max_additions, block = kernels::norm_block;
  if (run.mesh.world() > most)
    throw Error(ExitCode::usage, strfmt("%d ranks are more than exact sums can add", run.mesh.world()), "mesh",
                strfmt("Use at most %ld ranks", most));
  if (run.tokens > most)
    throw Error(ExitCode::usage,
                strfmt("%ld tokens of one rank in a step are more than the exact sum of the loss can add", run.tokens),
                "per_device_train_batch_size, gradient_accumulation_steps",
                strfmt("Give at most %ld tokens per rank and step", most));
  if (!run.trains) return;
  const ShardLayout& layout = *run.layout;
  TESSERA_ASSERT(layout.num_units() <= most, "%d units", layout.num_units());
  for (int u = 0; u < layout.num_units(); ++u)
    if (layout.trainable(u) && layout.shard_numel(u) / block > most)
      throw Error(ExitCode::usage,
                  strfmt("a shard of unit %s has %ld elements, more than the exact sum of the gradient norm can add",
                         layout.unit_name(u).c_str(), layout.shard_numel(u)),
                  "strategy", strfmt("Shard the unit over more ranks: at most %ld elements each", most * block));
}

}  // namespace tessera::shard
