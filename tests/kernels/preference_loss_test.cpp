// SPDX-License-Identifier: Apache-2.0
// Losses of pairs and of labelled sequences: gradients by finite differences, known values, and what is added up.
#include "kernels/preference_loss.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "preference_batch.hpp"

namespace tessera::kernels {
namespace {

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

}  // namespace
}  // namespace tessera::kernels
