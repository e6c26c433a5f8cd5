// SPDX-License-Identifier: Apache-2.0
// Sequences of losses of pairs: padding changes no bit, end to end or in rows; log-probabilities of targets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "kernels/linear_cross_entropy.hpp"
#include "preference_batch.hpp"

namespace tessera::kernels {
namespace {

TEST(PreferenceLoss, PaddingChangesNoBit) {
  Batch batch;
  std::vector<double> sums(rows), padded_sums(rows);
  sum_sequences({batch.view(), {sums.data(), Shape{rows}}}, host_stream);
  std::vector<float> log_probs(rows * 16);
  std::vector<std::int32_t> targets(rows * 16, ignore_index);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t t = 0; t < tokens; ++t) {
      log_probs[static_cast<std::size_t>(r * 16 + t)] = batch.log_probs[static_cast<std::size_t>(r * tokens + t)];
      targets[static_cast<std::size_t>(r * 16 + t)] = batch.targets[static_cast<std::size_t>(r * tokens + t)];
    }
  sum_sequences(
      {{{log_probs.data(), Shape{rows, 16}}, {targets.data(), Shape{rows, 16}}}, {padded_sums.data(), Shape{rows}}},
      host_stream);
  EXPECT_EQ(sums, padded_sums);
}

/// The same sequences in rows of 16 tokens, and end to end, behind which is room.
struct Laid {
  static constexpr std::int64_t lengths[] = {6, 3, 5, 4}, padded = 16, all = 20;
  explicit Laid(bool end_to_end)
      : shape(end_to_end ? Shape{1, all} : Shape{rows, padded}),
        log_probs(static_cast<std::size_t>(shape.numel())),
        squares(log_probs.size()),
        targets(log_probs.size(), ignore_index),
        weights(log_probs.size(), 7) {
    Batch batch;
    std::int64_t at = 0;
    for (std::int64_t r = 0; r < rows; ++r, at = end_to_end ? at : r * padded) {
      for (std::int64_t t = 0; t < lengths[r]; ++t, ++at) {
        const auto from = static_cast<std::size_t>(r * tokens + t), to = static_cast<std::size_t>(at);
        log_probs[to] = batch.log_probs[from], targets[to] = batch.targets[from];
        squares[to] = -0.01 * static_cast<double>(from);
        places.push_back(to);
      }
      ends.push_back(static_cast<std::int32_t>(at));
    }
    if (end_to_end) of = {ends.data(), Shape{rows}};
  }
  [[nodiscard]] SequenceRows view() {
    return {{log_probs.data(), shape}, {targets.data(), shape}, of, {squares.data(), shape}};
  }
  [[nodiscard]] TensorView written() { return {weights.data(), shape}; }
  [[nodiscard]] std::vector<float> weights_of_tokens() const {
    std::vector<float> found;
    for (const std::size_t i : places) found.push_back(weights[i]);
    return found;
  }
  Shape shape;
  std::vector<float> log_probs;
  std::vector<double> squares;
  std::vector<std::int32_t> targets, ends;
  std::vector<float> weights;
  std::vector<std::size_t> places;
  TensorView of;
};

TEST(PreferenceLoss, SequencesEndToEndHaveTheBitsOfRows) {
  Batch batch;
  std::vector<float> labels{1, -1, 0, 1};
  std::vector<double> kl(rows, 0.3);
  const TensorView reference{batch.reference.data(), Shape{rows}};
  using Result = std::tuple<double, std::int64_t, std::vector<float>, std::vector<std::int64_t>, std::vector<double>>;
  for (const PreferenceSpec& spec : {PreferenceSpec{.nll = 0.5, .tail_weight = 0.3, .weighted = true},
                                     PreferenceSpec{.kind = PreferenceKind::aot, .label_smoothing = 0.1},
                                     PreferenceSpec{.kind = PreferenceKind::kto}}) {
    const auto result = [&](bool end_to_end) -> Result {
      Laid laid(end_to_end);
      LossSums sums;
      std::vector<std::int64_t> metrics(num_preference_sums);
      std::vector<double> of_sequences(rows), scratch(2 * rows), matched(rows);
      const TensorView values{matched.data(), Shape{rows}};
      sum_sequences({laid.view(), {of_sequences.data(), Shape{rows}}, spec.tail_weight}, host_stream);
      if (spec.sorted())
        match_sorted({spec.kind, laid.view(), reference, {scratch.data(), Shape{2, rows}}, values}, host_stream);
      if (spec.labelled())
        labelled_loss({spec,
                       laid.view(),
                       reference,
                       {labels.data(), Shape{rows}},
                       {kl.data(), Shape{rows}},
                       laid.written(),
                       &sums,
                       metrics.data()},
                      host_stream);
      else
        preference_loss({.spec = spec,
                         .rows = laid.view(),
                         .reference_sums = reference,
                         .matched = spec.sorted() ? values : TensorView{},
                         .nll_weights = {batch.nll_weights.data(), Shape{rows}},
                         .weights = laid.written(),
                         .sums = &sums,
                         .metrics = metrics.data()},
                        host_stream);
      if (end_to_end) { EXPECT_EQ(laid.weights.back(), 7); }
      return {sums.loss.value(), sums.tokens, laid.weights_of_tokens(), metrics, of_sequences};
    };
    EXPECT_EQ(result(true), result(false)) << static_cast<int>(spec.kind);
  }
}

void expect_log_probs(std::int64_t vocab, double soft_cap) {
  constexpr std::int64_t n = 37, c = 5;
  std::vector<float> x(n * c), weight(static_cast<std::size_t>(vocab) * c), log_probs(n, 7);
  std::vector<double> squares(n, 7);
  std::vector<std::int32_t> targets(n);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(2 * uniform(3, i) - 1);
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<float>(4 * uniform(4, i) - 2);
  for (std::size_t i = 0; i < targets.size(); ++i)
    targets[i] = i % 4 == 3 ? ignore_index : static_cast<std::int32_t>(uniform(5, i) * static_cast<double>(vocab));
  std::vector<std::byte> memory(linear_cross_entropy_workspace(n, vocab, DType::f32));
  linear_cross_entropy({.x = {x.data(), Shape{n, c}},
                        .weight = {weight.data(), Shape{vocab, c}},
                        .targets = {targets.data(), Shape{n}},
                        .logits = {.soft_cap = soft_cap},
                        .log_probs = {log_probs.data(), Shape{n}},
                        .workspace = {memory.data(), DType::u8, Shape{static_cast<std::int64_t>(memory.size())}},
                        .log_sum_squares = {squares.data(), Shape{n}}},
                       host_stream);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    double largest = -INFINITY, sum = 0, square = 0, target = 0;
    std::vector<double> logits(static_cast<std::size_t>(vocab));
    for (std::size_t v = 0; v < logits.size(); ++v) {
      for (std::size_t k = 0; k < c; ++k) logits[v] += static_cast<double>(x[i * c + k]) * weight[v * c + k];
      if (soft_cap > 0) logits[v] = soft_cap * std::tanh(logits[v] / soft_cap);
      largest = std::max(largest, logits[v]);
    }
    for (const double logit : logits) sum += std::exp(logit - largest), square += std::exp(2 * (logit - largest));
    if (targets[i] != ignore_index) target = logits[static_cast<std::size_t>(targets[i])] - largest - std::log(sum);
    EXPECT_NEAR(static_cast<double>(log_probs[i]), target, 2e-6) << i;
    EXPECT_NEAR(squares[i], targets[i] == ignore_index ? 0 : std::log(square) - 2 * std::log(sum), 3e-6) << i;
  }
}

TEST(PreferenceLoss, CrossEntropyLeavesTheLogProbabilityOfEachTarget) {
  expect_log_probs(301, 0);
  expect_log_probs(5003, 0);  // several chunks
  expect_log_probs(5003, 3);
}

}  // namespace
}  // namespace tessera::kernels
