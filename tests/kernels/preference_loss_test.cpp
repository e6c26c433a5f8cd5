// SPDX-License-Identifier: Apache-2.0
// Losses of pairs and of labelled sequences: gradients by finite differences, log-probabilities of targets, padding,
// and what is added up.
#include "kernels/preference_loss.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "reference.hpp"
#include "runtime/base/rng.hpp"

namespace tessera::kernels {
namespace {

constexpr std::int64_t rows = 4, tokens = 6;

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

double value(const std::int64_t* metrics, PreferenceSum sum) {
  return static_cast<double>(metrics[static_cast<std::size_t>(sum)]) * preference_unit;
}

/// What pairs are compared with that are sorted together; absent for other losses.
struct Matched {
  std::vector<double> values = std::vector<double>(rows), scratch = std::vector<double>(2 * rows);
  Matched(const PreferenceSpec& spec, Batch& batch) : is_sorted(spec.sorted()) {
    if (is_sorted)
      match_sorted({.kind = spec.kind,
                    .rows = batch.view(),
                    .reference_sums = {batch.reference.data(), Shape{rows}},
                    .scratch = {scratch.data(), Shape{2, rows}},
                    .matched = {values.data(), Shape{rows}},
                    .tail_weight = spec.tail_weight},
                   host_stream);
  }
  [[nodiscard]] TensorView view() { return is_sorted ? TensorView{values.data(), Shape{rows}} : TensorView{}; }
  bool is_sorted;
};

/// The loss of the batch as the gradient has it: pairs, and the weighted cross-entropy of chosen targets.
double total(const PreferenceSpec& spec, Batch& batch) {
  LossSums sums;
  Matched matched(spec, batch);
  preference_loss({.spec = spec,
                   .rows = batch.view(),
                   .reference_sums = {batch.reference.data(), Shape{rows}},
                   .matched = matched.view(),
                   .nll_weights = {batch.nll_weights.data(), Shape{rows}},
                   .weights = {},
                   .sums = &sums},
                  host_stream);
  double loss = sums.loss.value();
  for (std::int64_t r = 0; r < rows; r += 2)
    for (std::int64_t t = 0; t < tokens; ++t)
      if (const auto i = static_cast<std::size_t>(r * tokens + t); batch.targets[i] != ignore_index)
        loss -= spec.nll * 0.4F * static_cast<double>(batch.log_probs[i]);
  return loss;
}

TEST(PreferenceLoss, AFurtherLossAddsToTheFirstAndCountsNoPair) {
  Batch batch;
  const auto run = [&](const PreferenceSpec& spec, double factor, bool is_further, std::vector<float>& weights,
                       LossSums& sums) {
    preference_loss({.spec = spec,
                     .rows = batch.view(),
                     .reference_sums = {batch.reference.data(), Shape{rows}},
                     .weights = {weights.data(), Shape{rows, tokens}},
                     .sums = &sums,
                     .factor = factor,
                     .is_further = is_further},
                    host_stream);
  };
  const PreferenceSpec one{.kind = PreferenceKind::sigmoid, .beta = 0.7},
      two{.kind = PreferenceKind::bco_pair, .beta = 0.7};
  std::vector<float> both(rows * tokens), first(both.size()), second(both.size());
  LossSums sums, of_first, of_second;
  run(one, 0.8, false, both, sums);
  run(two, 0.2, true, both, sums);
  run(one, 1, false, first, of_first);
  run(two, 1, false, second, of_second);
  EXPECT_NEAR(sums.loss.value(), 0.8 * of_first.loss.value() + 0.2 * of_second.loss.value(), 1e-12);
  EXPECT_EQ(sums.tokens, of_first.tokens);
  EXPECT_EQ(sums.correct, of_first.correct);
  for (std::size_t i = 0; i < both.size(); ++i) ASSERT_NEAR(both[i], 0.8F * first[i] + 0.2F * second[i], 1e-6) << i;
}

/// As in TRL, where a chosen reward must be larger.
TEST(PreferenceLoss, APairOfEqualRewardsIsNotRight) {
  for (const PreferenceKind kind : {PreferenceKind::sigmoid, PreferenceKind::ipo, PreferenceKind::bco_pair}) {
    Batch batch;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto chosen = static_cast<std::size_t>(t), rejected = static_cast<std::size_t>(tokens + t);
      batch.log_probs[rejected] = batch.log_probs[chosen];
      batch.targets[rejected] = batch.targets[chosen];
    }
    batch.reference[1] = batch.reference[0];
    batch.reference[3] = batch.reference[2] + 100;  // the second pair is right
    LossSums sums;
    std::vector<std::int64_t> metrics(num_preference_sums);
    preference_loss({.spec = {.kind = kind},
                     .rows = batch.view(),
                     .reference_sums = {batch.reference.data(), Shape{rows}},
                     .weights = {},
                     .sums = &sums,
                     .metrics = metrics.data()},
                    host_stream);
    EXPECT_EQ(sums.tokens, 2);
    EXPECT_EQ(sums.correct, 1);
  }
}

TEST(PreferenceLoss, WeightsAreTheNegatedGradient) {
  const PreferenceSpec specs[] = {{.kind = PreferenceKind::sigmoid, .beta = 0.7},
                                  {.kind = PreferenceKind::sigmoid, .beta = 0.7, .label_smoothing = 0.2, .nll = 0.5},
                                  {.kind = PreferenceKind::robust, .beta = 0.3, .label_smoothing = 0.1},
                                  {.kind = PreferenceKind::hinge, .beta = 0.2},
                                  {.kind = PreferenceKind::exo_pair, .beta = 0.4, .label_smoothing = 0.1},
                                  {.kind = PreferenceKind::discopop, .beta = 0.05, .discopop_tau = 0.3},
                                  {.beta = 0.7, .label_smoothing = 0.2, .divergence = Divergence::forward_kl},
                                  {.beta = 0.7, .divergence = Divergence::js_divergence, .nll = 0.5},
                                  {.kind = PreferenceKind::ipo,
                                   .beta = 0.4,
                                   .divergence = Divergence::alpha_divergence,
                                   .alpha = 0.3,
                                   .mean = true},
                                  {.kind = PreferenceKind::robust,
                                   .beta = 0.4,
                                   .label_smoothing = 0.1,
                                   .divergence = Divergence::alpha_divergence,
                                   .alpha = 1.5},
                                  {.kind = PreferenceKind::aot, .beta = 0.4, .label_smoothing = 0.1, .nll = 0.5},
                                  {.kind = PreferenceKind::aot_unpaired, .beta = 0.4},
                                  {.kind = PreferenceKind::nca_pair, .beta = 0.3},
                                  {.kind = PreferenceKind::bco_pair, .beta = 0.3},
                                  {.kind = PreferenceKind::sppo_hard, .beta = 0.6},
                                  {.kind = PreferenceKind::apo_zero, .beta = 0.3},
                                  {.kind = PreferenceKind::apo_down, .beta = 0.3, .nll = 0.5},
                                  {.kind = PreferenceKind::none, .nll = 1},
                                  {.beta = 0.7, .nll = 0.5, .tail_weight = 0.3},
                                  {.beta = 0.7, .tail_weight = 0, .weighted = true},
                                  {.kind = PreferenceKind::ipo, .beta = 0.4, .mean = true, .tail_weight = 0.5},
                                  {.kind = PreferenceKind::aot_unpaired, .beta = 0.4, .tail_weight = 0.5},
                                  {.kind = PreferenceKind::bco_pair, .beta = 0.3, .weighted = true},
                                  {.kind = PreferenceKind::ipo, .beta = 0.5, .mean = true},
                                  {.kind = PreferenceKind::simpo, .beta = 2, .gamma = 1, .mean = true, .nll = 1},
                                  {.kind = PreferenceKind::orpo, .beta = 0.3, .mean = true, .nll = 1}};
  for (const PreferenceSpec& spec : specs) {
    Batch batch;
    if (spec.kind == PreferenceKind::orpo) batch.reference.assign(rows, 0);
    std::vector<float> weights(rows * tokens);
    Matched matched(spec, batch);
    preference_loss({.spec = spec,
                     .rows = batch.view(),
                     .reference_sums = {batch.reference.data(), Shape{rows}},
                     .matched = matched.view(),
                     .nll_weights = {batch.nll_weights.data(), Shape{rows}},
                     .weights = {weights.data(), Shape{rows, tokens}}},
                    host_stream);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (batch.targets[i] == ignore_index) continue;
      constexpr float h = 1.0F / 1024;
      Batch above, below;
      above.reference = below.reference = batch.reference;
      above.log_probs[i] += h, below.log_probs[i] -= h;
      const double slope = (total(spec, above) - total(spec, below)) /
                           (static_cast<double>(above.log_probs[i]) - static_cast<double>(below.log_probs[i]));
      EXPECT_NEAR(static_cast<double>(weights[i]), -slope, 2e-5) << static_cast<int>(spec.kind) << " " << i;
    }
  }
}

/// The chosen sequences have 3 and 6 targets, and the rejected ones 6 and 5.
TEST(PreferenceLoss, TargetsPastTheShorterSequenceHaveAWeightOfTheirOwn) {
  Batch batch;
  for (std::size_t i = 0; i < batch.targets.size(); ++i) batch.log_probs[i] = batch.targets[i] == ignore_index ? 0 : -1;
  std::vector<double> sums(rows);
  sum_sequences({batch.view(), {sums.data(), Shape{rows}}, 0.25}, host_stream);
  EXPECT_EQ(sums, (std::vector<double>{-3, -3.75, -5.25, -5}));
  LossSums loss;
  std::int64_t metrics[num_preference_sums] = {};
  preference_loss({.spec = {.beta = 0.5, .tail_weight = 0.25, .weighted = true},
                   .rows = batch.view(),
                   .reference_sums = {},
                   .weights = {},
                   .sums = &loss,
                   .metrics = metrics},
                  host_stream);
  // Each target's log-probability is 0.2 below that of Σp².
  EXPECT_NEAR(loss.loss.value(),
              std::exp(-0.4) * (std::log1p(std::exp(-0.5 * 0.75)) + std::log1p(std::exp(0.5 * 0.25))), 1e-12);
  EXPECT_EQ(value(metrics, PreferenceSum::chosen_logp), -8.25);
  EXPECT_EQ(value(metrics, PreferenceSum::rejected_reward), 0.5 * -8.75);
  EXPECT_EQ(value(metrics, PreferenceSum::nll), 9);
}

TEST(PreferenceLoss, KnownValues) {
  Batch batch;
  batch.log_probs.assign(rows * tokens, -1);  // 3 targets in the first row, 5 in the last, 6 in the others
  for (std::size_t i = 0; i < batch.targets.size(); ++i)
    if (batch.targets[i] == ignore_index) batch.log_probs[i] = 0;
  LossSums sums;
  std::int64_t metrics[num_preference_sums] = {};
  preference_loss(
      {.spec = {.beta = 0.5}, .rows = batch.view(), .reference_sums = {}, .sums = &sums, .metrics = metrics},
      host_stream);
  // Margins are 0.5·(-3 + 6) and 0.5·(-6 + 5).
  EXPECT_NEAR(sums.loss.value(), std::log1p(std::exp(-1.5)) + std::log1p(std::exp(0.5)), 1e-12);
  EXPECT_EQ(sums.tokens, 2);
  EXPECT_EQ(sums.correct, 1);
  EXPECT_EQ(value(metrics, PreferenceSum::chosen_reward), 0.5 * (-3 - 6));
  EXPECT_EQ(value(metrics, PreferenceSum::rejected_reward), 0.5 * (-6 - 5));
  EXPECT_EQ(value(metrics, PreferenceSum::chosen_logp), -9);
  EXPECT_EQ(value(metrics, PreferenceSum::rejected_logp), -11);
  EXPECT_EQ(value(metrics, PreferenceSum::nll), 9);
  EXPECT_EQ(metrics[static_cast<std::size_t>(PreferenceSum::nll_targets)], 9);
}

struct LabelledBatch : Batch {
  std::vector<float> labels{1, -1, 0, 1};
  std::vector<double> kl = std::vector<double>(rows, 0.3);
  [[nodiscard]] LabelledLossArgs args(const PreferenceSpec& spec) {
    return {.spec = spec,
            .rows = view(),
            .reference_sums = {reference.data(), Shape{rows}},
            .labels = {labels.data(), Shape{rows}},
            .kl = {kl.data(), Shape{rows}},
            .weights = {}};
  }
  [[nodiscard]] double loss(const PreferenceSpec& spec) {
    LossSums sums;
    LabelledLossArgs of = args(spec);
    of.sums = &sums;
    labelled_loss(of, host_stream);
    return sums.loss.value();
  }
};

TEST(LabelledLoss, WeightsAreTheNegatedGradient) {
  for (const PreferenceKind kind : {PreferenceKind::kto, PreferenceKind::apo_zero_unpaired}) {
    const PreferenceSpec spec{.kind = kind, .beta = 0.7, .desirable_weight = 1.5, .undesirable_weight = 0.5};
    LabelledBatch batch;
    std::vector<float> weights(rows * tokens);
    LabelledLossArgs args = batch.args(spec);
    args.weights = {weights.data(), Shape{rows, tokens}};
    labelled_loss(args, host_stream);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (batch.targets[i] == ignore_index) continue;
      constexpr float h = 1.0F / 1024;
      LabelledBatch above, below;
      above.log_probs[i] += h, below.log_probs[i] -= h;
      const double slope = (above.loss(spec) - below.loss(spec)) /
                           (static_cast<double>(above.log_probs[i]) - static_cast<double>(below.log_probs[i]));
      EXPECT_NEAR(static_cast<double>(weights[i]), -slope, 2e-5) << static_cast<int>(kind) << " " << i;
    }
  }
}

TEST(LabelledLoss, KnownValues) {
  LabelledBatch batch;
  batch.log_probs.assign(rows * tokens, -1);  // 3 targets in the first row, 6, 6, and 5 in the last
  for (std::size_t i = 0; i < batch.targets.size(); ++i)
    if (batch.targets[i] == ignore_index) batch.log_probs[i] = 0;
  batch.reference = {-4, -4, -8, -5};
  LossSums sums;
  std::int64_t metrics[num_preference_sums] = {};
  LabelledLossArgs args = batch.args({.kind = PreferenceKind::kto, .beta = 0.5, .desirable_weight = 2});
  args.sums = &sums, args.metrics = metrics;
  labelled_loss(args, host_stream);
  const auto sigmoid_of = [](double x) { return 1 / (1 + std::exp(-x)); };
  EXPECT_NEAR(
      sums.loss.value(),
      2 * (1 - sigmoid_of(0.5 * (1 - 0.3))) + (1 - sigmoid_of(0.5 * (0.3 + 2))) + 2 * (1 - sigmoid_of(0.5 * (0 - 0.3))),
      1e-12);
  EXPECT_EQ(sums.tokens, 3) << "the row without a label is of the KL alone";
  EXPECT_EQ(value(metrics, PreferenceSum::chosen_reward), 0.5);
  EXPECT_EQ(value(metrics, PreferenceSum::rejected_reward), -1);
  EXPECT_EQ(value(metrics, PreferenceSum::chosen_logp), -8);
  EXPECT_EQ(value(metrics, PreferenceSum::rejected_logp), -6);
  EXPECT_EQ(value(metrics, PreferenceSum::kl), 2);
  EXPECT_EQ(metrics[static_cast<std::size_t>(PreferenceSum::chosen_rows)], 2);
  EXPECT_EQ(metrics[static_cast<std::size_t>(PreferenceSum::rejected_rows)], 1);
}

/// Three pairs by hand; equal values are in the order of the pairs.
TEST(PreferenceLoss, SortedPairsAreMatchedByRank) {
  std::vector<float> log_probs = {-3, -1, -5, -4, -2, -2};  // margins -2, -1, 0
  std::vector<std::int32_t> targets(6, 1);
  std::vector<double> reference = {-1, -2, -3, -3, -5, -4}, scratch(12), matched(6);  // margins 1, 0, -1
  MatchSortedArgs args{.kind = PreferenceKind::aot,
                       .rows = {{log_probs.data(), Shape{6, 1}}, {targets.data(), Shape{6, 1}}},
                       .reference_sums = {reference.data(), Shape{6}},
                       .scratch = {scratch.data(), Shape{2, 6}},
                       .matched = {matched.data(), Shape{6}}};
  match_sorted(args, host_stream);
  EXPECT_EQ(matched, (std::vector<double>{-1, -1, 0, 0, 1, 1}));
  args.kind = PreferenceKind::aot_unpaired;  // ρ of chosen -2, -2, 3; of rejected 1, -1, 2
  match_sorted(args, host_stream);
  EXPECT_EQ(matched, (std::vector<double>{-1, -2, 1, -2, 2, 3}));
  LossSums sums;
  preference_loss({.spec = {.kind = args.kind, .beta = 0.5},
                   .rows = args.rows,
                   .reference_sums = args.reference_sums,
                   .matched = args.matched,
                   .sums = &sums},
                  host_stream);
  double expected = 0;
  for (const double margin : {-2 + 1, -2 - 1, 3 - 2}) expected += std::log1p(std::exp(-0.5 * margin));
  EXPECT_NEAR(sums.loss.value(), expected, 1e-12);
}

TEST(PreferenceLoss, ExtremeMarginsStayFinite) {
  for (const float value : {-1e4F, -1e-6F}) {
    Batch batch;
    batch.log_probs.assign(rows * tokens, value);
    for (const PreferenceKind kind :
         {PreferenceKind::sigmoid, PreferenceKind::robust, PreferenceKind::orpo, PreferenceKind::discopop}) {
      LossSums sums;
      std::vector<float> weights(rows * tokens);
      preference_loss({.spec = {.kind = kind, .beta = 1, .mean = kind == PreferenceKind::orpo},
                       .rows = batch.view(),
                       .reference_sums = {},
                       .weights = {weights.data(), Shape{rows, tokens}},
                       .sums = &sums},
                      host_stream);
      EXPECT_TRUE(std::isfinite(sums.loss.value())) << static_cast<int>(kind) << " " << value;
      for (const float weight : weights) EXPECT_TRUE(std::isfinite(weight)) << static_cast<int>(kind) << " " << value;
    }
  }
}

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
