// SPDX-License-Identifier: Apache-2.0
#pragma once
// A batch of four sequences for the tests of losses of pairs and of labelled sequences.

#include <vector>

#include "kernels/preference_loss.hpp"
#include "reference.hpp"
#include "runtime/base/rng.hpp"

namespace tessera::kernels {

inline constexpr std::int64_t rows = 4, tokens = 6;

/// Log-probabilities of four sequences; those at even tokens of the first row have no target.
struct Batch {
  std::vector<float> log_probs;
  std::vector<std::int32_t> targets;
  std::vector<double> reference, squares = std::vector<double>(rows * tokens);
  std::vector<float> nll_weights;
  Batch() : log_probs(rows * tokens), targets(rows * tokens, 1), reference(rows), nll_weights(rows, 0.4F) {
    for (std::size_t i = 0; i < log_probs.size(); ++i) {
      log_probs[i] = static_cast<float>(-0.1 - uniform(1, i));
      if ((i < tokens && i % 2 == 0) || i == rows * tokens - 1) targets[i] = ignore_index, log_probs[i] = 0;
    }
    for (std::size_t r = 0; r < reference.size(); ++r) reference[r] = -2.0 - uniform(2, r);
  }
  /// Weighted pairs have the same weight for all log-probabilities, as if it had no gradient.
  [[nodiscard]] SequenceRows view() {
    for (std::size_t i = 0; i < squares.size(); ++i) squares[i] = static_cast<double>(log_probs[i]) + 0.2;
    const Shape shape{rows, tokens};
    return {{log_probs.data(), shape}, {targets.data(), shape}, {}, {squares.data(), shape}};
  }
};

}  // namespace tessera::kernels
