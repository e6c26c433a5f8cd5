// SPDX-License-Identifier: Apache-2.0
// Choosing tokens: which may be sampled, how often, and transformers' sampling parameters.

#include "runtime/infer/sampling.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "runtime/base/error.hpp"

namespace tessera::test {
namespace {

using infer::Sampling;
using infer::TokenPicker;

using Logits = std::vector<float>;

/// How often each token came in n draws.
std::map<int, int> draw(const infer::Sampling& sampling, const Logits& logits, int n,
                        const std::vector<std::int32_t>& row = {}) {
  infer::TokenPicker picker(sampling, static_cast<std::int64_t>(logits.size()));
  std::map<int, int> count;
  for (int i = 0; i < n; ++i) {
    Logits copy = logits;
    ++count[picker.pick(copy, row, static_cast<std::uint64_t>(i % 7), static_cast<std::uint64_t>(i / 7))];
  }
  return count;
}

const Logits five = {std::log(0.05F), std::log(0.4F), std::log(0.2F), std::log(0.25F), std::log(0.1F)};

TEST(Sampling, GreedyTakesTheLargestAndTheLowestOfEquals) {
  EXPECT_EQ(draw({}, five, 5), (std::map<int, int>{{1, 5}}));
  EXPECT_EQ(draw({}, {1, 3, 3, 2}, 5), (std::map<int, int>{{1, 5}}));
  EXPECT_EQ(draw({.top_k = 2, .top_p = 0.1}, five, 5), (std::map<int, int>{{1, 5}}));
}

TEST(Sampling, DrawsFollowTheSoftmaxOfTheTemperature) {
  constexpr int n = 40000;
  for (const double temperature : {1.0, 0.5, 3.0}) {
    double total = 0;
    for (const float x : five) total += std::exp(x / temperature);
    auto count = draw({.temperature = temperature}, five, n);
    for (int i = 0; i < 5; ++i) {
      const double p = std::exp(five[static_cast<std::size_t>(i)] / temperature) / total;
      EXPECT_NEAR(count[i], n * p, 5 * std::sqrt(n * p * (1 - p)))
          << "token " << i << " at temperature " << temperature;
    }
  }
}

TEST(Sampling, TopKKeepsTheKLargestAndEqualsOfTheLast) {
  auto count = draw({.temperature = 1, .top_k = 2}, five, 4000);
  EXPECT_EQ(count.size(), 2U);
  EXPECT_NEAR(count[1], 4000 * 0.4 / 0.65, 200);
  EXPECT_GT(count[3], 0);
  EXPECT_EQ(draw({.temperature = 1, .top_k = 2}, {2, 5, 2, 2, 0}, 4000).size(), 4U);
  EXPECT_EQ(draw({.temperature = 1, .top_k = 99}, five, 4000).size(), 5U);
}

TEST(Sampling, TopPKeepsTheFewestThatReachIt) {
  // In order: 0.4, 0.25, 0.2, 0.1, 0.05.
  const std::pair<double, std::size_t> cases[] = {{0.01, 1}, {0.39, 1}, {0.41, 2}, {0.64, 2}, {0.66, 3},
                                                  {0.84, 3}, {0.86, 4}, {0.96, 5}, {1.0, 5}};
  for (const auto& [p, kept] : cases) EXPECT_EQ(draw({.temperature = 1, .top_p = p}, five, 6000).size(), kept) << p;
  // After top_k: probabilities are relative to what it left (0.4, 0.25 -> 0.615, 0.385).
  EXPECT_EQ(draw({.temperature = 1, .top_k = 2, .top_p = 0.6}, five, 3000).size(), 1U);
  EXPECT_EQ(draw({.temperature = 1, .top_k = 2, .top_p = 0.63}, five, 3000).size(), 2U);
}

TEST(Sampling, DroppingSmallWeightsFirstEqualsSorting) {
  // Many tokens of small weight: dropping the smallest first equals sorting all.
  Logits many(5000);
  for (std::size_t i = 0; i < many.size(); ++i)
    many[i] = static_cast<float>(-0.002 * static_cast<double>((i * 2654435761U) % 5000));
  std::vector<float> sorted = many;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  double total = 0, mass = 0;
  for (const float x : sorted) total += std::exp(x);
  std::size_t kept = 0;
  while (mass < 0.9 * total) mass += std::exp(sorted[kept++]);
  for (const auto& [id, n] : draw({.temperature = 1, .top_p = 0.9}, many, 20000))
    EXPECT_GE(many[static_cast<std::size_t>(id)], sorted[kept - 1]);
}

TEST(Sampling, ARepeatedTokenIsPenalizedOnceAndTheOthersAreNot) {
  infer::TokenPicker picker({.repetition_penalty = 2}, 4);
  Logits logits = {4, 3, -1, -1.5F};
  EXPECT_EQ(picker.pick(logits, std::vector<std::int32_t>{0, 2, 0, 0}, 0, 0), 1);
  EXPECT_EQ(logits, (Logits{2, 3, -2, -1.5F}));
  logits = {4, 3, -1, -1.5F};  // nothing remains from the row before
  EXPECT_EQ(picker.pick(logits, std::vector<std::int32_t>{3}, 0, 1), 0);
  EXPECT_EQ(logits, (Logits{4, 3, -1, -3}));
}

TEST(Sampling, LogitsThatAreNotFiniteAreRefused) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY})
    for (const double temperature : {0.0, 1.0}) {
      Logits logits = five;
      logits[3] = bad;
      EXPECT_THROW((void)infer::TokenPicker({.temperature = temperature}, 5).pick(logits, {}, 0, 0), Error);
    }
}

TEST(Sampling, SeedPromptAndPositionNameTheDraw) {
  const infer::Sampling sampling{.temperature = 1};
  const Logits flat(1000, 0.0F);
  const auto one = [&](const infer::Sampling& s, std::uint64_t prompt, std::uint64_t position) {
    Logits copy = flat;
    return infer::TokenPicker(s, 1000).pick(copy, {}, prompt, position);
  };
  EXPECT_EQ(one(sampling, 3, 4), one(sampling, 3, 4));
  EXPECT_NE(one(sampling, 3, 4), one(sampling, 3, 5));
  EXPECT_NE(one(sampling, 3, 4), one(sampling, 2, 4));
  EXPECT_NE(one(sampling, 3, 4), one({.temperature = 1, .seed = 43}, 3, 4));
}

}  // namespace
}  // namespace tessera::test
