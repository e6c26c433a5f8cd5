// SPDX-License-Identifier: Apache-2.0
#pragma once
// VocabularyParts: the rows of embedding and head that each of several ranks has.

#include "models/params.hpp"
#include "runtime/base/tensor_placement.hpp"

namespace tessera::models {

/// A vocabulary in one part, or in one for each rank of the tensor axis (even_part). Tables have as many rows as the
/// largest part: behind a smaller one is a row of padding, which nothing reads and whose gradient is 0.
struct VocabularyParts {
  std::int64_t vocab = 0;
  int ranks = 1;

  [[nodiscard]] bool is_split() const { return ranks > 1; }
  [[nodiscard]] ElementRun of(int rank) const { return even_part(vocab, ranks, rank); }
  [[nodiscard]] std::int64_t largest() const { return of(0).length; }
  /// The rows of a rank's table without padding.
  [[nodiscard]] TensorView own(const TensorView& table, int rank) const {
    return is_split() && table ? table.rows(0, of(rank).length) : table;
  }
  /// The same of a gradient. What is padding becomes 0, unless the gradient is added to, and it is 0.
  [[nodiscard]] TensorView own_gradient(const TensorView& gradient, int rank, bool adds, StreamView stream) const {
    if (!is_split() || !gradient) return gradient;
    const std::int64_t count = of(rank).length;
    if (!adds && count < gradient.shape[0]) clear(gradient.rows(count, gradient.shape[0] - count), stream);
    return gradient.rows(0, count);
  }
};

}  // namespace tessera::models
