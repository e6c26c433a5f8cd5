// SPDX-License-Identifier: Apache-2.0
// What fits: plans of other sizes, by bisection, as if memory grew with the size.
#include "runtime/plan/limits.hpp"

#include <algorithm>

namespace tessera::plan {

namespace {

/// The largest number up to `most` of which `fits` is true; 0: not even 1.
template <class Fits>
std::int64_t largest(std::int64_t most, const Fits& fits) {
  if (most < 1 || !fits(1)) return 0;
  std::int64_t low = 1;  // fits
  while (low < most && fits(std::min(2 * low, most))) low = std::min(2 * low, most);
  std::int64_t high = std::min(2 * low, most + 1);
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace

std::int64_t largest_micro_batch(const RunSpec& spec, std::size_t device_memory) {
  return largest(std::int64_t{1} << 24, [&](std::int64_t rows) {
    RunSpec trial = spec;
    trial.batch.micro_batch = rows;
    trial.batch.global_batch = rows * spec.batch.data_ranks * spec.batch.accumulation;
    trial.eval_batch = 0;
    if (spec.flat_tokens > 0) trial.flat_tokens = trial.flat_eval_tokens = rows * spec.sequences * spec.tokens;
    return planned_memory(trial) <= device_memory;
  });
}

std::int64_t longest_rows(const RunSpec& spec, std::size_t device_memory) {
  const std::int64_t multiple = std::int64_t{16} * spec.row_ranks();
  return multiple * largest(spec.model->max_tokens / multiple, [&](std::int64_t parts) {
           RunSpec trial = spec;
           trial.tokens = parts * multiple;
           return planned_memory(trial) <= device_memory;
         });
}

}  // namespace tessera::plan
