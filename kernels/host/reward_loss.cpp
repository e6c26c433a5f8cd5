// SPDX-License-Identifier: Apache-2.0
// Scores of sequences on the host: rows and channels are few, and sums are fp64.
#include "kernels/host/reward_loss.hpp"

#include <algorithm>

#include "kernels/host/fp32_accumulator.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/reward_formulas.hpp"

namespace tessera::kernels::host {
namespace {

std::int32_t last_token(const ScoreArgs& args, std::int64_t row) {
  const std::int64_t tokens = args.ids.shape[1];
  const auto* const ids = args.ids.as<std::int32_t>();
  const auto* const positions = args.positions.as<std::int32_t>();
  const auto* const ends = args.ends ? args.ends.as<std::int32_t>() : nullptr;
  const std::int64_t begin = ends == nullptr ? row * tokens : row == 0 ? 0 : ends[row - 1];
  std::int64_t last = (ends == nullptr ? begin + tokens : ends[row]) - 1;
  while (last > begin && (positions[last] == 0 || ids[last] == args.pad_token)) --last;
  return static_cast<std::int32_t>(last);
}

}  // namespace

void score_sequences(const ScoreArgs& args) {
  const std::int64_t rows = args.scores.numel(), channels = args.x.shape[1];
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    const T* const weight = args.weight.as<T>();
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int32_t last = args.last.as<std::int32_t>()[row] = last_token(args, row);
      const T* const x = args.x.as<T>() + last * channels;
      double sum = 0;
      for (std::int64_t c = 0; c < channels; ++c) sum += static_cast<double>(x[c]) * static_cast<double>(weight[c]);
      args.scores.as<double>()[row] = sum;
    }
  });
}

void reward_loss(const RewardLossArgs& args) {
  const auto* const scores = args.scores.as<double>();
  for (std::int64_t row = 0; row < args.scores.numel(); row += 2) {
    const double margin = args.margins ? static_cast<double>(args.margins.as<float>()[row]) : 0.0;
    const double chosen = scores[row], rejected = scores[row + 1];
    const RewardTerms terms = reward_terms(chosen, rejected, margin, args.center);
    if (args.sums != nullptr) {
      args.sums->loss.add(terms.loss);
      args.sums->tokens += 1;
      args.sums->correct += chosen > rejected ? 1 : 0;
    }
    if (args.metrics != nullptr) {
      args.metrics[static_cast<int>(PreferenceSum::chosen_reward)] += preference_units(chosen);
      args.metrics[static_cast<int>(PreferenceSum::rejected_reward)] += preference_units(rejected);
    }
    if (!args.slopes) continue;
    args.slopes.as<double>()[row] = terms.chosen_slope;
    args.slopes.as<double>()[row + 1] = terms.rejected_slope;
  }
}

void score_backward(const ScoreBackwardArgs& args) {
  const std::int64_t rows = args.last.numel(), channels = args.x.shape[1];
  const auto* const last = args.last.as<std::int32_t>();
  const auto* const slopes = args.slopes.as<double>();
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    const T* const x = args.x.as<T>();
    const T* const weight = args.weight.as<T>();
    if (args.dweight)
      dispatch_gradient_dtype<T>(args.dweight.dtype, [&]<class G>(G) {
        G* const dweight = args.dweight.as<G>();
        for (std::int64_t c = 0; c < channels; ++c) {
          double sum = args.accumulate ? static_cast<double>(dweight[c]) : 0.0;
          for (std::int64_t row = 0; row < rows; ++row)
            sum += *args.loss_scale * slopes[row] * static_cast<double>(x[last[row] * channels + c]);
          dweight[c] = static_cast<G>(static_cast<Acc<G>>(sum));
        }
      });
    if (!args.dx) return;
    T* const dx = args.dx.as<T>();
    parallel_ranges(args.x.shape[0], 16, [&](std::int64_t begin, std::int64_t end) {
      std::fill(dx + begin * channels, dx + end * channels, T(0));
    });
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t c = 0; c < channels; ++c)
        dx[last[row] * channels + c] =
            static_cast<T>(static_cast<Acc<T>>(*args.loss_scale * slopes[row] * static_cast<double>(weight[c])));
  });
}

}  // namespace tessera::kernels::host
