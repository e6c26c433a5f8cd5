// SPDX-License-Identifier: Apache-2.0
// linear_cross_entropy against the formula in double, finite differences, splits of the rows, extremes.

#include "linear_cross_entropy_reference.hpp"

namespace tessera::kernels {
namespace {

template <class T>
struct Result {
  std::vector<T> dx, dweight;
  LossSums sums;
};

template <class T>
Result<T> run(const Case& s, std::vector<T> x, std::vector<T> w, Targets targets, double scale,
              const std::vector<T>& dweight_before = {}, Weights weights = {}, const LogitRules& rules = {}) {
  const T nan = std::numeric_limits<T>::quiet_NaN();
  Result<T> r{
      std::vector<T>(x.size(), nan), dweight_before.empty() ? std::vector<T>(w.size(), nan) : dweight_before, {}};
  Workspace workspace(linear_cross_entropy_workspace(s.n, s.v, dtype_of<T>::value));
  linear_cross_entropy({.x = view(x, {s.n, s.c}),
                        .weight = view(w, {s.v, s.c}),
                        .targets = view(targets),
                        .weights = weights.empty() ? TensorView{} : view(weights),
                        .logits = rules,
                        .sums = &r.sums,
                        .workspace = workspace.view(),
                        .loss_scale = &scale,
                        .dx = view(r.dx, {s.n, s.c}),
                        .dweight = view(r.dweight, {s.v, s.c}),
                        .accumulate = !dweight_before.empty()},
                       host_stream);
  EXPECT_TRUE(workspace.intact());
  return r;
}

template <class T>
LossSums evaluate(const Case& s, std::vector<T> x, std::vector<T> w, Targets targets, Weights weights = {},
                  const LogitRules& rules = {}) {
  LossSums sums;
  Workspace workspace(linear_cross_entropy_workspace(s.n, s.v, dtype_of<T>::value));
  linear_cross_entropy({.x = view(x, {s.n, s.c}),
                        .weight = view(w, {s.v, s.c}),
                        .targets = view(targets),
                        .weights = weights.empty() ? TensorView{} : view(weights),
                        .logits = rules,
                        .sums = &sums,
                        .workspace = workspace.view()},
                       host_stream);
  EXPECT_TRUE(workspace.intact());
  return sums;
}

template <class T>
void expect_as_reference(const Case& s, double tolerance, const Weights& weights = {}, const LogitRules& rules = {}) {
  SCOPED_TRACE(testing::Message() << "N " << s.n << " C " << s.c << " V " << s.v);
  const auto x = random_vector<T>(s.n * s.c, 22), w = random_vector<T>(s.v * s.c, 23, 0.5);
  const auto targets = random_targets(s, 2);
  const double scale = 1.0 / 7;
  const auto expected =
      reference(s, Vector(x.begin(), x.end()), Vector(w.begin(), w.end()), targets, scale, weights, rules);
  const auto got = run<T>(s, x, w, targets, scale, {}, weights, rules);
  EXPECT_NEAR(got.sums.loss.value(), expected.loss, tolerance * (1 + expected.loss));
  EXPECT_EQ(got.sums.tokens, expected.tokens);
  EXPECT_EQ(got.sums.correct, expected.correct);
  EXPECT_LT(relative_error(got.dx, expected.dx), tolerance);
  EXPECT_LT(relative_error(got.dweight, expected.dweight), tolerance);
  const LossSums evaluated = evaluate<T>(s, x, w, targets, weights, rules);
  EXPECT_EQ(evaluated.loss.value(), got.sums.loss.value());
  EXPECT_EQ(evaluated.correct, got.sums.correct);
}

TEST(LinearCrossEntropy, MatchesTheReferenceOnEveryInstructionSet) {
  for (const Isa set : instruction_sets()) {
    SCOPED_TRACE(name_of(set));
    const Setting setting(2, set);
    for (const Case& s : {Case{13, 24, 67}, Case{1, 8, 256}, Case{70, 5, 1}, Case{37, 16, 2049}, Case{2100, 3, 31}}) {
      expect_as_reference<float>(s, 5e-6);
      expect_as_reference<double>(s, 1e-13);
    }
  }
}

/// Weights of n rows: 0, fractions, above 1, and below 0, as gradients of other losses have them.
Weights row_weights(std::int64_t n) {
  Weights weights;
  for (std::int64_t i = 0; i < n; ++i) weights.push_back(i % 5 == 2 ? 0 : 0.37F * static_cast<float>(i % 7 - 2));
  return weights;
}

TEST(LinearCrossEntropy, WeightsMultiplyTheLossAndTheGradientOfARow) {
  for (const Isa set : instruction_sets()) {
    SCOPED_TRACE(name_of(set));
    const Setting setting(2, set);
    for (const Case& s : {Case{13, 24, 67}, Case{37, 16, 2049}, Case{2100, 3, 31}}) {
      expect_as_reference<float>(s, 5e-6, row_weights(s.n));
      expect_as_reference<double>(s, 1e-13, row_weights(s.n));
    }
  }
}

TEST(LinearCrossEntropy, LogitsHaveAScaleAndASoftCap) {
  for (const Isa set : instruction_sets()) {
    SCOPED_TRACE(name_of(set));
    const Setting setting(2, set);
    for (const LogitRules& rules : {LogitRules{0.3, 0}, LogitRules{1, 2.5}, LogitRules{1.7, 0.9}})
      for (const Case& s : {Case{13, 24, 67}, Case{37, 16, 2049}, Case{2100, 3, 31}}) {
        expect_as_reference<float>(s, 5e-6, row_weights(s.n), rules);
        expect_as_reference<double>(s, 1e-13, row_weights(s.n), rules);
      }
  }
}

TEST(LinearCrossEntropy, WeightsOfOneHaveTheBitsOfNone) {
  const Case s{70, 24, 2049};
  const auto x = random_vector<float>(s.n * s.c, 22), w = random_vector<float>(s.v * s.c, 23, 0.5);
  const auto targets = random_targets(s, 2);
  Weights ones(70, 1.0F);
  for (std::size_t i = 0; i < ones.size(); ++i)  // not read where there is no target
    if (targets[i] == ignore_index) ones[i] = std::numeric_limits<float>::quiet_NaN();
  const auto without = run<float>(s, x, w, targets, 1.0 / 7), with = run<float>(s, x, w, targets, 1.0 / 7, {}, ones);
  EXPECT_EQ(with.sums.loss.value(), without.sums.loss.value());
  EXPECT_EQ(with.dx, without.dx);
  EXPECT_EQ(with.dweight, without.dweight);
}

TEST(LinearCrossEntropy, BlocksOfRowsAndChunksOfALargeVocabulary) {
  expect_as_reference<float>({330, 2, 50257}, 5e-6);  // two blocks, 25 chunks, the last one short
}

TEST(LinearCrossEntropy, GradientIsTheSlopeOfTheLoss) {
  const Case s{9, 7, 4100};  // three chunks
  auto x = random_vector<double>(s.n * s.c, 24), w = random_vector<double>(s.v * s.c, 25);
  const auto targets = random_targets(s, 2);
  const double scale = 0.25, h = 1e-5;
  const auto analytic = run<double>(s, x, w, targets, scale);
  const auto slope = [&](double& at) {
    const double value = at;
    at = value + h;
    const double above = evaluate<double>(s, x, w, targets).loss.value();
    at = value - h;
    const double below = evaluate<double>(s, x, w, targets).loss.value();
    at = value;
    return scale * (above - below) / (2 * h);
  };
  for (std::size_t i = 0; i < x.size(); i += 2) EXPECT_NEAR(slope(x[i]), analytic.dx[i], 1e-8) << "x " << i;
  for (std::size_t i = 0; i < w.size(); i += 997) EXPECT_NEAR(slope(w[i]), analytic.dweight[i], 1e-8) << "weight " << i;
  for (const auto t : targets) {
    if (t == ignore_index) continue;
    const auto i = static_cast<std::size_t>(t) * static_cast<std::size_t>(s.c);
    EXPECT_NEAR(slope(w[i]), analytic.dweight[i], 1e-8) << "weight of target " << t;
  }
}

TEST(LinearCrossEntropy, IgnoredRowsHaveNoGradientEvenIfNotFinite) {
  const Case s{6, 4, 19};
  auto x = random_vector<float>(s.n * s.c, 26), w = random_vector<float>(s.v * s.c, 27);
  const Targets targets{3, ignore_index, 4, 5, ignore_index, 18};
  const auto clean = run<float>(s, x, w, targets, 1.0);
  EXPECT_EQ(clean.sums.tokens, 4);
  for (std::size_t c = 0; c < 4; ++c) EXPECT_EQ(clean.dx[4 + c], 0.0F);
  for (std::size_t c = 0; c < 4; ++c) x[4 + c] = 1e30F;  // logits overflow, in an ignored row
  const auto wild = run<float>(s, x, w, targets, 1.0);
  EXPECT_EQ(wild.sums.loss.value(), clean.sums.loss.value());
  EXPECT_EQ(wild.dweight, clean.dweight);
  const auto none = run<float>(s, x, w, Targets(6, ignore_index), 1.0);
  EXPECT_EQ(none.sums.tokens, 0);
  EXPECT_EQ(none.sums.loss.value(), 0);
  for (const float g : none.dweight) EXPECT_EQ(g, 0.0F);
}

TEST(LinearCrossEntropy, AccumulatesOrOverwrites) {
  const Case s{33, 8, 50};
  const auto x = random_vector<double>(s.n * s.c, 28), w = random_vector<double>(s.v * s.c, 29),
             before = random_vector<double>(s.v * s.c, 30);
  const auto targets = random_targets(s, 1);
  const auto fresh = run<double>(s, x, w, targets, 1.0), added = run<double>(s, x, w, targets, 1.0, before);
  Vector expected = before;
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += fresh.dweight[i];
  EXPECT_LT(relative_error(added.dweight, expected), 1e-14);
  EXPECT_EQ(added.dx, fresh.dx);
}

template <class T>
void expect_the_same_bits_of_any_part(const Case& s) {
  const auto w = random_vector<T>(s.v * s.c, 29), before = random_vector<T>(s.v * s.c, 30);
  const auto targets = random_targets(s, 1);
  const double scale = 0.125;
  const auto full = run<T>(s, random_vector<T>(s.n * s.c, 28), w, targets, scale, before);
  enum class Dx : unsigned char { none, own, in_place };
  for (const Dx dx : {Dx::none, Dx::own, Dx::in_place})
    for (const bool dweight : {false, true}) {
      auto x = random_vector<T>(s.n * s.c, 28), own = x, weight = w, gradient = before;
      auto of = targets;
      LossSums sums;
      Workspace workspace(linear_cross_entropy_workspace(s.n, s.v, dtype_of<T>::value));
      linear_cross_entropy({.x = view(x, {s.n, s.c}),
                            .weight = view(weight, {s.v, s.c}),
                            .targets = view(of),
                            .sums = &sums,
                            .workspace = workspace.view(),
                            .loss_scale = &scale,
                            .dx = dx == Dx::none ? TensorView{} : view(dx == Dx::own ? own : x, {s.n, s.c}),
                            .dweight = dweight ? view(gradient, {s.v, s.c}) : TensorView{},
                            .accumulate = true},
                           host_stream);
      EXPECT_TRUE(workspace.intact());
      EXPECT_EQ(sums.loss.value(), full.sums.loss.value());
      EXPECT_EQ(sums.correct, full.sums.correct);
      if (dx != Dx::none) { EXPECT_EQ(dx == Dx::own ? own : x, full.dx) << s.n << " " << s.v; }
      EXPECT_EQ(gradient, dweight ? full.dweight : before) << s.n << " " << s.v;
    }
}

TEST(LinearCrossEntropy, PartOfTheGradientsHasTheBitsOfAll) {
  for (const Case& s : {Case{13, 24, 67}, Case{37, 16, 4100}, Case{2100, 3, 31}}) {
    const Setting setting(2);
    expect_the_same_bits_of_any_part<float>(s);
    expect_the_same_bits_of_any_part<double>(s);
  }
}

TEST(LinearCrossEntropy, AnEmptyMicroBatchOverwritesWithZeros) {
  const auto fresh = run<float>({0, 4, 9}, {}, random_vector<float>(36, 31), {}, 1.0);
  EXPECT_EQ(fresh.sums.tokens, 0);
  for (const float g : fresh.dweight) EXPECT_EQ(g, 0.0F);
}

TEST(LinearCrossEntropy, AnySplitOfTheRowsGivesTheSameTotal) {
  const Case full{64, 24, 67}, part{16, 24, 67};
  const auto x = random_vector<float>(full.n * full.c, 32), w = random_vector<float>(full.v * full.c, 33);
  const auto targets = random_targets(full, 2);
  LossSums forwards, backwards;
  for (int k = 0; k < 4; ++k) {
    const auto add = [&](LossSums& to, int i) {
      const auto sums = evaluate<float>(part, {x.begin() + i * 16 * 24, x.begin() + (i + 1) * 16 * 24}, w,
                                        {targets.begin() + i * 16, targets.begin() + (i + 1) * 16});
      to.loss.add(sums.loss);
      to.tokens += sums.tokens;
    };
    add(forwards, k);
    add(backwards, 3 - k);
  }
  EXPECT_EQ(forwards.loss.value(), backwards.loss.value());
  const auto all = evaluate<float>(full, x, w, targets);
  EXPECT_EQ(forwards.tokens, all.tokens);
  EXPECT_NEAR(forwards.loss.value(), all.loss.value(), 1e-5 * all.loss.value());
}

TEST(LinearCrossEntropy, ThreadsChangeTheSweepsByNoBit) {
  // One small GEMM, which is not split, so only the passes over rows are.
  const Case s{13, 24, 67};
  const auto x = random_vector<float>(s.n * s.c, 34), w = random_vector<float>(s.v * s.c, 35);
  const auto targets = random_targets(s, 2);
  Result<float> one;
  for (const int num_threads : {1, 2, 3, 8}) {
    const Setting setting(num_threads);
    const auto r = run<float>(s, x, w, targets, 0.1);
    if (num_threads == 1) one = r;
    EXPECT_EQ(r.dx, one.dx);
    EXPECT_EQ(r.dweight, one.dweight);
    EXPECT_EQ(r.sums.loss.value(), one.sums.loss.value());
  }
}

TEST(LinearCrossEntropy, EqualCallsGiveEqualBits) {
  const Case s{300, 64, 5000};
  const auto x = random_vector<float>(s.n * s.c, 36), w = random_vector<float>(s.v * s.c, 37);
  const auto targets = random_targets(s, 1);
  const Setting setting(2);
  const auto first = run<float>(s, x, w, targets, 0.1), second = run<float>(s, x, w, targets, 0.1);
  EXPECT_EQ(first.dx, second.dx);
  EXPECT_EQ(first.dweight, second.dweight);
  EXPECT_EQ(first.sums.loss.value(), second.sums.loss.value());
}

TEST(LinearCrossEntropy, TheLowestIndexAmongEqualsIsTheArgmax) {
  // The logits of a row are a column of the weight: 1 at two indices, in different chunks.
  const Case s{1, 1, 5000};
  std::vector<float> w(5000, 0.5F);
  w[700] = w[4900] = 1;
  EXPECT_EQ(evaluate<float>(s, {1}, w, {700}).correct, 1);
  EXPECT_EQ(evaluate<float>(s, {1}, w, {4900}).correct, 0);
  EXPECT_EQ(evaluate<float>(s, {1}, w, {3}).correct, 0);
}

TEST(LinearCrossEntropy, ExtremeLogitsAreFinite) {
  const Case s{2, 1, 4100};
  std::vector<float> w(4100);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = i % 2 ? 1e4F : -1e4F;
  const auto r = run<float>(s, {1, -1}, w, {4, 4}, 1.0);
  EXPECT_FALSE(r.sums.loss.nonfinite());
  EXPECT_NEAR(r.sums.loss.value(), 2e4 + 2 * std::log(2050.0), 1e-9 * 2e4);
  for (const auto* v : {&r.dx, &r.dweight}) {
    for (const float g : *v) EXPECT_TRUE(std::isfinite(g));
  }
}

TEST(LinearCrossEntropy, NaNAndInfinityReachTheSum) {
  const Case s{3, 2, 4100};
  const auto w = random_vector<float>(s.v * s.c, 38);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    EXPECT_TRUE(run<float>(s, {1, 2, bad, 1, 1, 1}, w, {5, 6, 7}, 1.0).sums.loss.nonfinite());
    auto bad_weight = w;
    bad_weight[4000 * 2] = bad;
    EXPECT_TRUE(evaluate<float>(s, {1, 2, 1, 1, 1, 1}, bad_weight, {5, 6, 7}).loss.nonfinite());
  }
}

}  // namespace
}  // namespace tessera::kernels
