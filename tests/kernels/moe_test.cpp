// SPDX-License-Identifier: Apache-2.0
// Routing: choices and weights by hand, gradients by finite differences, dispatch and combination of rows; any number
// of threads.
#include "kernels/moe.hpp"

#include <numeric>

#include "reference.hpp"

namespace tessera::kernels {
namespace {

constexpr ExpertWeights all_weights[] = {ExpertWeights::probabilities, ExpertWeights::normalized,
                                         ExpertWeights::sigmoids};

template <class T>
struct Problem {
  Problem(std::int64_t tokens, std::int64_t num_experts, std::int64_t chosen, ExpertWeights weighed)
      : n(tokens),
        e(num_experts),
        k(chosen),
        weigh(weighed),
        logits(random_vector<T>(n * e, 1, 2)),
        probs(logits.size()),
        weights(static_cast<std::size_t>(n * k)),
        dweights(random_vector<T>(n * k, 2)),
        experts(weights.size()),
        counts(static_cast<std::size_t>(e)),
        sums(counts.size()),
        balance(random_vector<double>(e, 3)) {}
  void choose() {
    route({.logits = view(logits, {n, e}),
           .probs = view(probs, {n, e}),
           .experts = view(experts, {n, k}),
           .weights = view(weights, {n, k}),
           .weigh = weigh,
           .counts = view(counts),
           .sums = view(sums)},
          host_stream);
  }
  /// Σ dweights·weights + Σ balance·probs: what route_backward differentiates.
  double scalar() {
    choose();
    double sum = 0;
    for (std::size_t i = 0; i < weights.size(); ++i)
      sum += static_cast<double>(dweights[i]) * static_cast<double>(weights[i]);
    for (std::size_t i = 0; i < probs.size(); ++i) sum += balance[i % counts.size()] * static_cast<double>(probs[i]);
    return sum;
  }
  std::int64_t n, e, k;
  ExpertWeights weigh;
  std::vector<T> logits, probs, weights, dweights;
  std::vector<std::int32_t> experts;
  std::vector<double> counts, sums, balance;
};

TEST(Route, TakesTheLargestTheFirstAmongEqualsAndCounts) {
  std::vector<double> logits = {0, std::log(3), 0, std::log(4),  // probabilities 1/9, 3/9, 1/9, 4/9
                                7, 7,           7, 7};
  std::vector<double> probs(8), weights(6), counts(4), sums(4);
  std::vector<std::int32_t> experts(6);
  for (const ExpertWeights weigh : {ExpertWeights::probabilities, ExpertWeights::normalized}) {
    route({.logits = view(logits, {2, 4}),
           .probs = view(probs, {2, 4}),
           .experts = view(experts, {2, 3}),
           .weights = view(weights, {2, 3}),
           .weigh = weigh,
           .counts = view(counts),
           .sums = view(sums)},
          host_stream);
    EXPECT_EQ(experts, (std::vector<std::int32_t>{3, 1, 0, 0, 1, 2}));
    const std::vector<double> expected = weigh == ExpertWeights::normalized
                                             ? std::vector<double>{4 / 8.0, 3 / 8.0, 1 / 8.0, 1 / 3.0, 1 / 3.0, 1 / 3.0}
                                             : std::vector<double>{4 / 9.0, 3 / 9.0, 1 / 9.0, .25, .25, .25};
    EXPECT_LE(relative_error(weights, expected), 1e-15);
    EXPECT_EQ(counts, (std::vector<double>{2, 2, 1, 1}));
    EXPECT_LE(relative_error(sums, std::vector<double>{1 / 9.0 + .25, 3 / 9.0 + .25, 1 / 9.0 + .25, 4 / 9.0 + .25}),
              1e-15);
  }
}

TEST(Route, SigmoidsAreChosenByLogits) {
  // In floats the first three probabilities are 0, and the last two sigmoids are 1.
  std::vector<float> logits = {-120, -110, -130, 40, 50}, weights(4), probs(5);
  std::vector<std::int32_t> experts(4);
  route({.logits = view(logits, {1, 5}),
         .probs = view(probs, {1, 5}),
         .experts = view(experts, {1, 4}),
         .weights = view(weights, {1, 4}),
         .weigh = ExpertWeights::sigmoids},
        host_stream);
  EXPECT_EQ(experts, (std::vector<std::int32_t>{4, 3, 1, 0}));
  EXPECT_EQ(weights[0], 1.0F);
  EXPECT_EQ(weights[1], 1.0F);
  EXPECT_NEAR(probs[4], 1 / (1 + std::exp(-10.0)), 1e-6);  // probabilities are those of a softmax all the same
  std::vector<double> logit = {0, 1, -1}, weight(2), p(3);
  experts.resize(2);
  route({.logits = view(logit, {1, 3}),
         .probs = view(p, {1, 3}),
         .experts = view(experts, {1, 2}),
         .weights = view(weight, {1, 2}),
         .weigh = ExpertWeights::sigmoids},
        host_stream);
  EXPECT_LE(relative_error(weight, std::vector<double>{1 / (1 + std::exp(-1)), 0.5}), 1e-15);
}

TEST(Route, SlopesOfWeightsAndOfTheBalanceLoss) {
  for (const Isa set : instruction_sets())
    for (const ExpertWeights weigh : all_weights) {
      const Setting setting(1, set);
      Problem<double> p(9, 7, 3, weigh);
      p.choose();
      std::vector<double> dlogits(p.logits.size());
      route_backward({.dweights = view(p.dweights, {p.n, p.k}),
                      .probs = view(p.probs, {p.n, p.e}),
                      .experts = view(p.experts, {p.n, p.k}),
                      .weights = view(p.weights, {p.n, p.k}),
                      .weigh = weigh,
                      .balance = view(p.balance),
                      .dlogits = view(dlogits, {p.n, p.e})},
                     host_stream);
      for (std::size_t i = 0; i < dlogits.size(); ++i) {
        const double h = 1e-6, at = p.logits[i];
        p.logits[i] = at + h;
        const double above = p.scalar();
        p.logits[i] = at - h;
        const double below = p.scalar();
        p.logits[i] = at;
        EXPECT_NEAR(dlogits[i], (above - below) / (2 * h), 1e-8) << i;
      }
    }
}

TEST(Route, AnyNumberOfThreadsAndInPlace) {
  Problem<float> p(300, 37, 5, ExpertWeights::normalized);
  p.choose();
  const auto probs = p.probs, weights = p.weights;
  const auto counts = p.counts, sums = p.sums;
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0.0), 1500);
  EXPECT_NEAR(std::accumulate(sums.begin(), sums.end(), 0.0), 300, 1e-3);
  for (const int num : {2, 3}) {
    const Setting setting(num);
    p.choose();
    EXPECT_TRUE(p.probs == probs && p.weights == weights && p.counts == counts && p.sums == sums);
  }
  p.probs = p.logits;
  route({.logits = view(p.probs, {p.n, p.e}),
         .probs = view(p.probs, {p.n, p.e}),
         .experts = view(p.experts, {p.n, p.k}),
         .weights = view(p.weights, {p.n, p.k})},
        host_stream);
  EXPECT_TRUE(p.probs == probs && p.weights == weights);
}

TEST(Dispatch, RowsAreSortedByExpertAndComeBack) {
  constexpr std::int64_t n = 50, k = 3, e = 6, c = 11;
  Problem<double> p(n, e, k, ExpertWeights::normalized);
  p.choose();
  std::vector<std::int32_t> slots(n * k), rows(n * k), offsets(e + 1);
  const Dispatch dispatch{view(slots), view(rows), view(offsets)};
  make_dispatch(view(p.experts, {n, k}), dispatch, host_stream);
  EXPECT_EQ(offsets.front(), 0);
  EXPECT_EQ(offsets.back(), n * k);
  for (std::size_t row = 0; row < slots.size(); ++row) {
    const auto slot = static_cast<std::size_t>(slots[row]);
    EXPECT_EQ(rows[slot], static_cast<std::int32_t>(row));
    const auto expert = static_cast<std::size_t>(p.experts[slot]);
    EXPECT_TRUE(offsets[expert] <= static_cast<std::int32_t>(row) &&
                static_cast<std::int32_t>(row) < offsets[expert + 1]);
    const bool same = row > 0 && p.experts[slot] == p.experts[static_cast<std::size_t>(slots[row - 1])];
    EXPECT_TRUE(!same || slots[row - 1] < slots[row]);
  }
  auto x = random_vector<double>(n * c, 6);
  std::vector<double> gathered(n * k * c), back(x.size(), 100);
  gather_rows(view(x, {n, c}), dispatch, view(gathered, {n * k, c}), host_stream);
  combine_rows({.x = view(gathered, {n * k, c}),
                .weights = view(p.weights, {n, k}),
                .dispatch = dispatch,
                .y = view(back, {n, c})},
               host_stream);
  EXPECT_LE(relative_error(back, x), 1e-14);  // the weights of a token sum to one
  combine_rows({.x = view(gathered, {n * k, c}),
                .weights = {},
                .dispatch = dispatch,
                .y = view(back, {n, c}),
                .accumulate = true},
               host_stream);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(back[i], 4 * x[i], 1e-13);
  // combine_weights_backward: dot products by slot, both rows times the weight
  auto a = random_vector<double>(n * k * c, 7), b = random_vector<double>(n * k * c, 8);
  const auto a_before = a, b_before = b;
  combine_weights_backward({.a = view(a, {n * k, c}),
                            .b = view(b, {n * k, c}),
                            .weights = view(p.weights, {n, k}),
                            .dispatch = dispatch,
                            .dweights = view(p.dweights, {n, k})},
                           host_stream);
  for (std::size_t row = 0; row < slots.size(); ++row) {
    const auto slot = static_cast<std::size_t>(slots[row]);
    double dot = 0;
    for (std::size_t i = row * c; i < (row + 1) * c; ++i) {
      dot += a_before[i] * b_before[i];
      EXPECT_DOUBLE_EQ(a[i], p.weights[slot] * a_before[i]);
      EXPECT_DOUBLE_EQ(b[i], p.weights[slot] * b_before[i]);
    }
    EXPECT_NEAR(p.dweights[slot], dot, 1e-13);
  }
  auto alone = a_before;
  combine_weights_backward(
      {.a = view(alone, {n * k, c}), .b = {}, .weights = view(p.weights, {n, k}), .dispatch = dispatch, .dweights = {}},
      host_stream);
  EXPECT_EQ(alone, a);
}

TEST(Dispatch, ExpertsThatNobodyChoseHaveNoRows) {
  std::vector<std::int32_t> experts = {4, 4, 4}, slots(3), rows(3), offsets(7);
  make_dispatch(view(experts, {3, 1}), {view(slots), view(rows), view(offsets)}, host_stream);
  EXPECT_EQ(offsets, (std::vector<std::int32_t>{0, 0, 0, 0, 0, 3, 3}));
}

}  // namespace
}  // namespace tessera::kernels
