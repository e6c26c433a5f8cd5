#pragma once
// Figures of stored tensors: of one (minimum, mean, NaNs), and of the difference of two. In pieces that can be joined.

#include "io/inspect/tensor_catalog.hpp"

namespace tessera::io {

struct TensorStats {
  std::int64_t count = 0, nans = 0, infinities = 0;
  double least = 0, most = 0, sum = 0;  // of the finite ones
  [[nodiscard]] std::int64_t finite() const { return count - nans - infinities; }
  [[nodiscard]] double mean() const { return finite() > 0 ? sum / static_cast<double>(finite()) : 0; }
  void join(const TensorStats& other);
};

struct TensorDifference {
  std::int64_t elements = 0;                  // that differ: not equal, and not both the same NaN
  double max_absolute = 0, max_relative = 0;  // |a-b|, and |a-b| / max(|a|, |b|), where both are finite
  std::int64_t unlike = 0;                    // of these: one is NaN or infinite, and the other is not the same
  void join(const TensorDifference& other);
};

/// True if its elements can be read as numbers: known type.
[[nodiscard]] bool is_numeric(const TensorEntry& tensor);
/// Elements [first, first + count). Throws Error (data) as BlockCache does.
[[nodiscard]] TensorStats measure(const TensorEntry& tensor, BlockCache& cache, std::int64_t first, std::int64_t count);
/// The same elements of two tensors of equal shape, whatever their types; 0.0 and -0.0 are equal
/// only bit by bit if the types are.
[[nodiscard]] TensorDifference compare(const TensorEntry& a, BlockCache& cache_a, const TensorEntry& b,
                                       BlockCache& cache_b, std::int64_t first, std::int64_t count);

}  // namespace tessera::io
