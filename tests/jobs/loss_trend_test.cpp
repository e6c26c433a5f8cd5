// SPDX-License-Identifier: Apache-2.0
// Whether the loss of a run has fallen.
#include "jobs/cli/session/loss_trend.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tessera::jobs {
namespace {

using testing::HasSubstr;

std::string said(const std::vector<double>& losses, double log_vocabulary, bool resumed = false) {
  LossTrend trend(static_cast<std::int64_t>(losses.size()));
  for (const double loss : losses) trend.add(loss, loss > 0 ? 100 : 0);
  return trend.not_fallen({log_vocabulary, resumed});
}

std::vector<double> line(int steps, double from, double to) {
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) losses.push_back(from + (to - from) * i / (steps - 1));
  return losses;
}

TEST(LossTrend, SaysNothingOfALossThatFalls) {
  EXPECT_EQ(said(line(30, 5.6, 4.9), std::log(256)), "");
  EXPECT_EQ(said(line(400, 2.1, 2.05), std::log(32000)), "");
  EXPECT_EQ(said(line(30, 2.00, 2.02), std::log(32000)), "") << "noise of single batches";
  EXPECT_EQ(said(line(400, 2.00, 2.02), std::log(32000), true), "") << "at its floor before the resume";
  EXPECT_EQ(said({5.6, 5.6}, std::log(256)), "") << "too few steps";
  EXPECT_EQ(said({5.65, 5.62, 5.59, 5.57}, std::log(256)), "") << "it may still fall";
  EXPECT_EQ(said({0, 5.6, 0, 5.5, 5.4, 5.3, 5.2, 5.1, 5.0, 4.0, 0}, std::log(256)), "") << "skipped steps";
}

TEST(LossTrend, NamesALossThatDoesNot) {
  std::vector<double> ruined =
      line(34, 5.60, std::log(256.0));  // begins above, goes far up, ends where nothing is known
  for (std::size_t i = 1; i < 20; ++i) ruined[i] = 900;
  EXPECT_THAT(said(ruined, std::log(256)), HasSubstr("did not fall below ln(vocabulary) = 5.5452"));
  EXPECT_THAT(said({5.546, 5.5452, 5.5452}, std::log(256)), HasSubstr("that of a model that has learnt nothing"));
  EXPECT_EQ(said(ruined, 0), "") << "of weighted losses";
  EXPECT_THAT(said(line(30, 2.0, 7.0), std::log(32000)),
              HasSubstr("did not fall: 2.0000 in the first step, 2.1724 over the first"));
  EXPECT_THAT(said(line(60, 2.0, 2.0), std::log(32000)), HasSubstr("did not fall"));
  EXPECT_THAT(said(line(60, 2.0, 2.4), std::log(32000), true), HasSubstr("did not fall"));
  std::vector<double> jumps = line(30, 9.0, 4.0);
  jumps[0] = 2.0;  // a pretrained model whose first update destroyed it
  EXPECT_THAT(said(jumps, std::log(32000)), HasSubstr("did not fall"));
}

}  // namespace
}  // namespace tessera::jobs
