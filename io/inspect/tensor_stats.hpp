// SPDX-License-Identifier: Apache-2.0
#pragma once
// Statistics of one tensor (minimum, mean, NaNs), and of the difference of two. Those of parts can be joined.

#include "io/inspect/tensor_catalog.hpp"

namespace tessera::io {

struct TensorStats {
  std::int64_t count = 0, nans = 0, infinities = 0;
  double min = 0, max = 0, sum = 0;  // of the finite ones
  [[nodiscard]] std::int64_t finite() const { return count - nans - infinities; }
  [[nodiscard]] double mean() const { return finite() > 0 ? sum / static_cast<double>(finite()) : 0; }
  void join(const TensorStats& other);
};

struct TensorDifference {
  std::int64_t elements = 0;                  // that differ: not equal, and not both the same NaN
  double max_absolute = 0, max_relative = 0;  // |a-b|, and |a-b| / max(|a|, |b|), where both are finite
  std::int64_t one_not_finite = 0;            // of these: one is NaN or infinite, the other is not the same
  void join(const TensorDifference& other);
};

/// True if its type is known, so that its elements can be read as numbers.
[[nodiscard]] bool is_numeric(const TensorEntry& tensor);
/// Of elements [first, first + count). Throws Error (data) as BlockCache does.
[[nodiscard]] TensorStats compute_stats(const TensorEntry& tensor, BlockCache& cache, std::int64_t first,
                                        std::int64_t count);
/// Compares the same elements of two tensors of equal shape: bit by bit if their types are equal, else by value.
[[nodiscard]] TensorDifference compare(const TensorEntry& a, BlockCache& cache_a, const TensorEntry& b,
                                       BlockCache& cache_b, std::int64_t first, std::int64_t count);

}  // namespace tessera::io
