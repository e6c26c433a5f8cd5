// SPDX-License-Identifier: Apache-2.0
#pragma once
// What linear_cross_entropy does with the chunks of a block of rows.

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/host/linear_cross_entropy.hpp"
#include "kernels/linear_cross_entropy.hpp"

namespace tessera::kernels::host {

/// Blocks and chunks of (N, V): a function of N, V and the element's size only.
struct LossBlocks {
  std::int64_t rows, chunk, chunks;  // rows of a block, columns of a chunk (the last may have fewer), chunks

  LossBlocks(std::int64_t n, std::int64_t vocab, std::size_t element) {
    constexpr std::int64_t wanted_chunk = 2048;
    const std::int64_t limit = row_limit(vocab, element);
    const std::int64_t blocks = std::max<std::int64_t>(1, (n + limit - 1) / limit);
    rows = std::min(std::max<std::int64_t>(n, 1), round((n + blocks - 1) / blocks, 16));
    const std::int64_t parts = (vocab + wanted_chunk - 1) / wanted_chunk;
    chunk = parts == 1 ? vocab : round((vocab + parts - 1) / parts, 32);
    chunks = (vocab + chunk - 1) / chunk;
  }
  [[nodiscard]] std::int64_t column(std::int64_t c) const { return c * chunk; }
  /// The most rows that a block of n rows or fewer has. (Of n rows alone it may have less than of fewer.)
  [[nodiscard]] static std::int64_t most_rows(std::int64_t n, std::int64_t vocab, std::size_t element) {
    return std::clamp<std::int64_t>(n, 1, row_limit(vocab, element));
  }

 private:
  static std::int64_t row_limit(std::int64_t vocab, std::size_t element) {
    constexpr std::int64_t budget = std::int64_t{64} << 20;
    const std::int64_t fit = budget / std::max<std::int64_t>(1, vocab * static_cast<std::int64_t>(element));
    return std::clamp<std::int64_t>(fit / 16 * 16, 16, 1024);
  }
  static std::int64_t round(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }
};

/// State of a row over the chunks.
struct LossRow {
  double max = -std::numeric_limits<double>::infinity(), sum = 0;  // running maximum and Σ exp(logit - max)
  double target = 0;                                               // the target's logit
  double lse = 0;                                                  // after all chunks
  std::int64_t argmax = -1;                                        // the lowest index of max
};

/// A row of a chunk: the logits of columns [column, column + width).
template <class A>
struct ChunkRow {
  A* x;
  std::int64_t column, width;
  std::int32_t target;
  A soft_cap = 0;  // of the logits; 0: none
};

/// The largest logit of a chunk, whose logits have got their soft cap.
template <class A>
A largest_logit(const ChunkRow<A>& of, const LinearCrossEntropy<A>& sweeps) {
  if (of.soft_cap > 0) sweeps.soft_cap(of.x, of.width, of.soft_cap);
  return sweeps.largest(of.x, of.width);
}

/// Σ exp(logit - max). The logits become these exponentials; with a soft cap, whose slope they tell, they stay.
template <class A>
double sum_exponentials(const ChunkRow<A>& of, A max, const LinearCrossEntropy<A>& sweeps) {
  return of.soft_cap > 0 ? sweeps.sum_exponentials(of.x, of.width, max) : sweeps.exponentiate(of.x, of.width, max);
}

/// Adds the chunk to the row's state; returns its maximum. The logits become what sum_exponentials makes of them.
template <class A>
A observe(LossRow& row, const ChunkRow<A>& of, const LinearCrossEntropy<A>& sweeps) {
  const std::int64_t target = of.target - of.column;
  const A chunk_max = largest_logit(of, sweeps);
  if (target >= 0 && target < of.width) row.target = static_cast<double>(of.x[target]);
  const auto max = static_cast<double>(chunk_max);
  if (max > row.max) row.argmax = of.column + sweeps.find(of.x, of.width, chunk_max);
  const double sum = sum_exponentials(of, chunk_max, sweeps);
  if (max > row.max) {
    row.sum = row.sum * std::exp(row.max - max) + sum;
    row.max = max;
  } else {
    row.sum += sum * std::exp(max - row.max);
  }
  return chunk_max;
}

/// After all chunks.
inline void add_row(LossRow& row, std::int32_t target, double weight, LossSums& sums) {
  row.lse = row.max + std::log(row.sum);
  sums.loss.add(weight * (row.lse - row.target));
  sums.tokens += 1;
  sums.correct += row.argmax == target ? 1 : 0;
}

/// Turns what sum_exponentials left of a chunk into the gradient of scale · loss by the logits before their cap.
template <class A>
void to_gradient(const LossRow& row, const ChunkRow<A>& of, A chunk_max, double scale,
                 const LinearCrossEntropy<A>& sweeps) {
  const auto factor = static_cast<A>(std::exp(static_cast<double>(chunk_max) - row.lse) * scale);
  const std::int64_t target = of.target - of.column;
  double slope = 1;
  if (of.soft_cap > 0) {
    sweeps.capped_gradient(of.x, of.width, {chunk_max, factor, 1 / of.soft_cap});
    const double tangent = row.target / static_cast<double>(of.soft_cap);
    slope -= tangent * tangent;
  } else {
    sweeps.scale(of.x, of.width, factor);
  }
  if (target >= 0 && target < of.width) of.x[target] -= static_cast<A>(scale * slope);
}

/// Targets are in host memory.
inline void check_targets(const TensorView& targets, std::int64_t vocab) {
  const auto* values = targets.as<std::int32_t>();
  for (std::int64_t i = 0; i < targets.numel(); ++i)
    TESSERA_ASSERT((values[i] >= 0 && values[i] < vocab) || values[i] == ignore_index, "target %d of vocabulary %ld",
                   values[i], vocab);
}

}  // namespace tessera::kernels::host
