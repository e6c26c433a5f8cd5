// SPDX-License-Identifier: Apache-2.0
#pragma once
// The batch equation: which samples of the global batch each micro-batch of each rank holds. Pure.

#include <cstdint>
#include <optional>

namespace tessera::plan {

/// Global batch G in samples, micro-batch B, W data ranks (those that differ along Mesh::data_axes), accumulation A =
/// ceil(G / (B·W)). Micro-batch m = a·W + r (a: the accumulation step, r: the data rank) holds samples [m·B,
/// min((m+1)·B, G)): the last ones may be short or empty.
struct BatchPlan {
  std::int64_t global_batch = 1, micro_batch = 1;
  int data_ranks = 1, accumulation = 1;

  struct Range {
    std::int64_t first = 0, count = 0;
  };
  /// Samples of accumulation step a on data rank r, relative to the start of the global batch. The last batch of an
  /// epoch has only `samples` ≤ G.
  [[nodiscard]] Range range(int a, int r, std::int64_t samples) const;
};

/// W, and how many ranks have the rows of each: messages count ranks, or groups of ranks that have the same rows.
struct DataRanks {
  // Not explicit: where no rows are shared, W says all.
  DataRanks(int ranks, int share_rows = 1) : count(ranks), sharing(share_rows) {}
  int count, sharing;
};

/// Computes what is not given (defaults: B 8, A 1). Throws Error (usage) if all three are given and ceil(G/(B·W)) != A
/// (the message has the equation, and which option to change), or if a value is not positive.
[[nodiscard]] BatchPlan solve_batch(std::optional<std::int64_t> global_batch, std::optional<std::int64_t> micro_batch,
                                    std::optional<std::int64_t> accumulation, DataRanks ranks);

}  // namespace tessera::plan
