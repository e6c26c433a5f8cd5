// SPDX-License-Identifier: Apache-2.0
// Scores of sequences and the loss of their pairs: gradients by finite differences, which token is the last, padding,
// and what is added up.
#include "kernels/reward_loss.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/preference_loss.hpp"
#include "runtime/base/rng.hpp"

namespace tessera::kernels {
namespace {

constexpr std::int64_t rows = 4, channels = 5;
constexpr std::int32_t pad_token = 9;

/// Four sequences of 6, 3, 5 and 6 tokens in rows of `tokens`; the second one ends with a token that pads.
struct Scores {
  explicit Scores(std::int64_t tokens_)
      : tokens(tokens_), x(at(rows * tokens * channels)), ids(at(rows * tokens)), positions(ids.size()) {
    constexpr std::int64_t lengths[rows] = {6, 3, 5, 6};
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t t = 0; t < tokens; ++t) {
        const std::size_t i = at(r * tokens + t);
        ids[i] = t < lengths[r] ? (r == 1 && t == 2 ? pad_token : 3) : 0;
        positions[i] = t < lengths[r] ? static_cast<std::int32_t>(t) : 0;
        for (std::int64_t c = 0; c < channels; ++c) {
          const auto number = static_cast<std::uint64_t>((r * 100 + t) * channels + c);
          x[i * channels + at(c)] = uniform(1, number) - 0.5;
        }
      }
    for (std::size_t c = 0; c < weight.size(); ++c) weight[c] = 2 * uniform(2, c) - 1;
  }
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  double loss(double center, std::int64_t* metrics = nullptr) {
    const TensorView score{scores.data(), Shape{rows}};
    const Shape shape = ends.empty() ? Shape{rows, tokens} : Shape{1, rows * tokens};
    score_sequences({.x = {x.data(), Shape{rows * tokens, channels}},
                     .weight = {weight.data(), Shape{1, channels}},
                     .ids = {ids.data(), shape},
                     .positions = {positions.data(), shape},
                     .pad_token = pad_token,
                     .last = {last.data(), Shape{rows}},
                     .scores = score,
                     .ends = ends.empty() ? TensorView{} : TensorView{ends.data(), Shape{rows}}},
                    host_stream);
    sums = {};
    reward_loss({.scores = score,
                 .margins = {margins.data(), Shape{rows}},
                 .center = center,
                 .slopes = {slopes.data(), Shape{rows}},
                 .sums = &sums,
                 .metrics = metrics},
                host_stream);
    return sums.loss.value();
  }
  void backward(std::vector<double>& dx, std::vector<double>& dweight, bool accumulate) {
    score_backward({.x = {x.data(), Shape{rows * tokens, channels}},
                    .weight = {weight.data(), Shape{1, channels}},
                    .last = {last.data(), Shape{rows}},
                    .slopes = {slopes.data(), Shape{rows}},
                    .loss_scale = &scale,
                    .dx = {dx.data(), Shape{rows * tokens, channels}},
                    .dweight = {dweight.data(), Shape{1, channels}},
                    .accumulate = accumulate},
                   host_stream);
  }

  std::int64_t tokens;
  std::vector<double> x, weight = std::vector<double>(channels), scores = std::vector<double>(rows),
                         slopes = std::vector<double>(rows);
  std::vector<std::int32_t> ids, positions, last = std::vector<std::int32_t>(rows), ends;  // ends: of one row; or none
  std::vector<float> margins{0.75F, 0, -0.5F, 0};
  LossSums sums;
  double scale = 0.5;
};

TEST(RewardLoss, GradientsAreThoseOfFiniteDifferences) {
  constexpr double step = 1e-5;
  for (const double center : {0.0, 0.3}) {
    Scores s(7);
    (void)s.loss(center);
    std::vector<double> dx(s.x.size(), 5), dweight(channels, 0.25);
    s.backward(dx, dweight, /*accumulate=*/true);
    const auto slope = [&](double& value) {
      const double before = value;
      value = before + step;
      const double up = s.loss(center);
      value = before - step;
      const double down = s.loss(center);
      value = before;
      return s.scale * (up - down) / (2 * step);
    };
    for (std::size_t i = 0; i < s.x.size(); ++i) ASSERT_NEAR(dx[i], slope(s.x[i]), 1e-8) << i;
    for (std::size_t c = 0; c < channels; ++c) EXPECT_NEAR(dweight[c] - 0.25, slope(s.weight[c]), 1e-8) << c;
    // Into the memory of x.
    (void)s.loss(center);
    std::vector<double> again(channels, 0.25);
    s.backward(s.x, again, /*accumulate=*/false);
    EXPECT_EQ(s.x, dx);
    for (std::size_t c = 0; c < channels; ++c) EXPECT_NEAR(again[c], dweight[c] - 0.25, 1e-15);
  }
}

TEST(RewardLoss, ScoresAreOfTheLastTokenThatDoesNotPad) {
  Scores s(7), longer(12);
  std::int64_t metrics[num_preference_sums] = {}, of_longer[num_preference_sums] = {};
  const double loss = s.loss(0.1, metrics);
  EXPECT_EQ(s.last, (std::vector<std::int32_t>{5, 7 + 1, 14 + 4, 21 + 5}));
  for (std::int64_t r = 0; r < rows; ++r) {
    double score = 0;
    for (std::int64_t c = 0; c < channels; ++c)
      score += s.x[Scores::at(s.last[Scores::at(r)] * channels + c)] * s.weight[Scores::at(c)];
    EXPECT_NEAR(s.scores[Scores::at(r)], score, 1e-15);
  }
  double expected = 0;
  for (std::size_t pair : {0U, 2U}) {
    const double z = s.scores[pair] - s.scores[pair + 1] - static_cast<double>(s.margins[pair]),
                 sum = s.scores[pair] + s.scores[pair + 1];
    expected += std::log1p(std::exp(-z)) + 0.1 * sum * sum;
  }
  EXPECT_NEAR(loss, expected, 1e-12);
  EXPECT_EQ(s.sums.tokens, 2);
  EXPECT_EQ(s.sums.correct, (s.scores[0] > s.scores[1] ? 1 : 0) + (s.scores[2] > s.scores[3] ? 1 : 0));
  EXPECT_NEAR(static_cast<double>(metrics[static_cast<int>(PreferenceSum::chosen_reward)]) * preference_unit,
              s.scores[0] + s.scores[2], 1e-6);
  EXPECT_NEAR(static_cast<double>(metrics[static_cast<int>(PreferenceSum::rejected_reward)]) * preference_unit,
              s.scores[1] + s.scores[3], 1e-6);
  // Longer rows have the same bits.
  EXPECT_EQ(longer.loss(0.1, of_longer), loss);
  EXPECT_EQ(longer.scores, s.scores);
  EXPECT_TRUE(std::equal(metrics, metrics + num_preference_sums, of_longer));
}

TEST(RewardLoss, SequencesEndToEndHaveTheBitsOfRows) {
  Scores of_rows(7), joined(7);
  constexpr std::int32_t ends[rows] = {6, 9, 14, 20};
  joined.ends.assign(ends, ends + rows);
  std::vector<std::size_t> places;  // of each token of `joined`, in the rows
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t t = 0; t < ends[r] - (r == 0 ? 0 : ends[r - 1]); ++t) places.push_back(Scores::at(r * 7 + t));
  joined.tokens = 6;  // four times six is enough
  for (std::vector<std::int32_t>* of : {&joined.ids, &joined.positions}) of->assign(24, 0);
  joined.x.assign(24 * channels, 0.5);
  for (std::size_t i = 0; i < places.size(); ++i) {
    joined.ids[i] = of_rows.ids[places[i]], joined.positions[i] = of_rows.positions[places[i]];
    std::copy_n(of_rows.x.begin() + static_cast<std::ptrdiff_t>(places[i] * channels), channels,
                joined.x.begin() + static_cast<std::ptrdiff_t>(i * channels));
  }
  EXPECT_EQ(joined.loss(0.1), of_rows.loss(0.1));
  EXPECT_EQ(joined.scores, of_rows.scores);
  EXPECT_EQ(joined.last, (std::vector<std::int32_t>{5, 7, 13, 19}));
  std::vector<double> dx(joined.x.size(), 5), dx_of_rows(of_rows.x.size(), 5), dweight(channels), of_weight(channels);
  joined.backward(dx, dweight, /*accumulate=*/false);
  of_rows.backward(dx_of_rows, of_weight, /*accumulate=*/false);
  EXPECT_EQ(dweight, of_weight);
  for (std::size_t i = 0; i < 24 * channels; ++i)
    EXPECT_EQ(dx[i], i / channels < places.size() ? dx_of_rows[places[i / channels] * channels + i % channels] : 0);
}

}  // namespace
}  // namespace tessera::kernels
