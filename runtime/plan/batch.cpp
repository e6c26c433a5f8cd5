// SPDX-License-Identifier: Apache-2.0
// The batch equation solved for what is missing.

#include "runtime/plan/batch.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "runtime/base/error.hpp"

namespace tessera::plan {

namespace {

using Count = std::optional<std::int64_t>;

constexpr std::int64_t default_micro_batch = 8;

void require_positive(const Count& value, const char* option) {
  if (value && *value < 1)
    throw Error(ExitCode::usage, strfmt("%s is %ld", option, *value), {}, "Give a number of at least 1");
}

/// a·b, or usage error: a batch beyond 64 bits.
std::int64_t product(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result))
    throw Error(ExitCode::usage, "the global batch overflows 64 bits", {}, "Give smaller numbers");
  return result;
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

const char* ranks_or_groups(DataRanks ranks) {
  return ranks.sharing > 1 ? "groups of ranks that have the same rows" : "ranks";
}

/// All three are given and contradict each other: the equation, and which option to change.
[[noreturn]] void refuse(std::int64_t global, std::int64_t micro, std::int64_t accumulation, DataRanks ranks) {
  const std::int64_t made = product(product(micro, accumulation), ranks.count);
  throw Error(ExitCode::usage,
              strfmt("global_batch_size %ld != micro %ld x accumulation %ld x %s %d = %ld", global, micro, accumulation,
                     ranks_or_groups(ranks), ranks.count, made),
              {},
              strfmt("Set gradient_accumulation_steps=%ld or global_batch_size=%ld, or drop one of the three",
                     ceil_div(global, product(micro, ranks.count)), made));
}

/// The smallest micro-batch that makes `accumulation` steps of G; usage error if no micro-batch does (10 samples in 6
/// steps).
std::int64_t solve_micro(std::int64_t global, std::int64_t accumulation, DataRanks ranks) {
  const std::int64_t micro = ceil_div(global, product(accumulation, ranks.count));
  const std::int64_t steps = ceil_div(global, product(micro, ranks.count));
  if (steps == accumulation) return micro;
  throw Error(ExitCode::usage,
              strfmt("no micro-batch makes %ld accumulation steps of global_batch_size %ld on %d %s", accumulation,
                     global, ranks.count, ranks_or_groups(ranks)),
              {},
              strfmt("Set gradient_accumulation_steps=%ld or global_batch_size=%ld, or drop one of the two", steps,
                     product(product(micro, accumulation), ranks.count)));
}

}  // namespace

BatchPlan::Range BatchPlan::range(int a, int r, std::int64_t samples) const {
  TESSERA_ASSERT(a >= 0 && a < accumulation && r >= 0 && r < data_ranks && samples >= 0 && samples <= global_batch,
                 "step %d of rank %d, %ld samples", a, r, samples);
  const std::int64_t micro = static_cast<std::int64_t>(a) * data_ranks + r;
  const std::int64_t first = std::min(micro * micro_batch, samples);
  return {first, std::min(micro_batch, samples - first)};
}

BatchPlan solve_batch(Count global_batch, Count micro_batch, Count accumulation, DataRanks ranks) {
  const int data_ranks = ranks.count;
  TESSERA_ASSERT(data_ranks >= 1 && ranks.sharing >= 1, "%d data ranks", data_ranks);
  require_positive(global_batch, "global_batch_size");
  require_positive(micro_batch, "per_device_train_batch_size");
  require_positive(accumulation, "gradient_accumulation_steps");

  std::int64_t micro = micro_batch.value_or(default_micro_batch);
  std::int64_t global = 0, steps = 0;
  if (!global_batch) {
    steps = accumulation.value_or(1);
    global = product(product(micro, steps), data_ranks);
  } else {
    global = *global_batch;
    if (accumulation && !micro_batch) micro = solve_micro(global, *accumulation, ranks);
    steps = ceil_div(global, product(micro, data_ranks));
    if (accumulation && steps != *accumulation) refuse(global, micro, *accumulation, ranks);
  }
  (void)product(product(micro, steps), data_ranks);  // range() multiplies
  if (steps > std::numeric_limits<int>::max())
    throw Error(ExitCode::usage, "more than 2^31 accumulation steps", {},
                "Give a larger micro-batch or a smaller global batch");
  return {
      .global_batch = global, .micro_batch = micro, .data_ranks = data_ranks, .accumulation = static_cast<int>(steps)};
}

}  // namespace tessera::plan
