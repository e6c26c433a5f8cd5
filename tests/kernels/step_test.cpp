// SPDX-License-Identifier: Apache-2.0
// clip_and_skip and accumulate_norm: the value of the counters is ExactSum's; clip and skip are those of the host's
// executor.
#include "kernels/step.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/adamw.hpp"
#include "kernels/sgd.hpp"
#include "kernels/step_formulas.hpp"
#include "runtime/base/rng.hpp"

namespace tessera::kernels {
namespace {

double value_of(const ExactSum& sum) {
  std::int64_t digits[ExactSum::num_digits];
  return exact_value(sum.counters().data(), digits);
}

/// Sums of terms of all sizes and signs.
std::vector<ExactSum> sums() {
  std::vector<ExactSum> all(1);
  for (std::uint64_t i = 0; i < 400; ++i) {
    ExactSum sum;
    for (std::uint64_t k = 0; k <= i % 7; ++k) {
      const auto words = philox(3, 8 * i + k);
      const double fraction = 1 + static_cast<double>(words[0]) * 0x1p-32 + static_cast<double>(words[1]) * 0x1p-52;
      const int spread = i < 200 ? 40 : 2000;
      sum.add(std::ldexp(words[2] % 2 != 0 ? fraction : -fraction,
                         static_cast<int>(words[3] % static_cast<std::uint32_t>(spread)) - spread / 2));
    }
    all.push_back(sum);
  }
  for (const double x : {1.0, -1.0, 0x1p-1074, -0x1p-1074, std::numeric_limits<double>::max(), 0x1.fffffffffffffp0,
                         0x1p53, 4294967296.0}) {
    ExactSum one, more;
    one.add(x);
    all.push_back(one);
    for (int i = 0; i < 3; ++i) more.add(x), more.add(0x1p-1074);
    all.push_back(more);
  }
  return all;
}

TEST(Step, value_of_words_is_the_sums_value) {
  for (const ExactSum& sum : sums()) EXPECT_EQ(value_of(sum), sum.value());
}

struct Counters {
  ExactSum norm2, loss;
  std::vector<std::int64_t> flags = {0, 0, 0};
  [[nodiscard]] StepScalars decided(double limit, double scale, std::int64_t skip = 0) const {
    StepScalars step{
        .decision = {.clip = 77, .skip = skip}, .loss_scale = 3, .gradient_scale = scale, .max_grad_norm = limit};
    clip_and_skip({.norm2 = norm2.counters().data(),
                   .loss = loss.counters().data(),
                   .flags = flags.data(),
                   .units = static_cast<int>(flags.size()),
                   .step = &step},
                  host_stream);
    return step;
  }
};

TEST(Step, clips_as_the_host_does) {
  for (const double scale : {1.0, 65536.0})
    for (const double limit : {0.0, 0.5, 1e9}) {
      Counters counters;
      counters.norm2.add(1234.5678);
      counters.norm2.add(1e-3);
      const StepScalars step = counters.decided(limit, scale);
      const double norm = std::sqrt(counters.norm2.value()) / scale,
                   clip = limit > 0 ? std::min(1.0, limit / (norm + 1e-6)) : 1.0;
      EXPECT_EQ(step.decision.clip, static_cast<double>(static_cast<float>(clip / scale))) << limit << " " << scale;
      EXPECT_EQ(step.decision.skip, 0);
    }
}

TEST(Step, skips_what_is_not_finite) {
  Counters loss, unit;
  loss.loss.add(std::nan(""));
  unit.flags[2] = 2;
  EXPECT_EQ(loss.decided(1, 1).decision.skip, 1);
  EXPECT_EQ(unit.decided(1, 1).decision.skip, 1);
}

TEST(Step, keeps_the_skip_of_a_warm_up) {
  Counters counters;
  counters.norm2.add(4);
  EXPECT_EQ(counters.decided(1, 1, 1).decision.skip, 1);
}

TEST(Step, joins_a_unit_and_clears_it) {
  ExactSum unit, all;
  unit.add(2.5);
  all.add(0.25);
  std::int64_t flag = 9;
  accumulate_norm({.unit = unit.counters().data(), .all = all.counters().data(), .flag = &flag}, host_stream);
  EXPECT_EQ(all.value(), 2.75);
  EXPECT_EQ(unit.value(), 0);
  EXPECT_EQ(flag, 0);
  unit.add(std::numeric_limits<double>::infinity());
  accumulate_norm({.unit = unit.counters().data(), .all = all.counters().data(), .flag = &flag}, host_stream);
  EXPECT_EQ(flag, 1);
  EXPECT_TRUE(all.nonfinite());
}

/// The sum of 2^30 times the same digits.
ExactSum at_the_bound(double x) {
  ExactSum sum;
  sum.add(x);
  for (std::int64_t n = 1; n < ExactSum::max_additions; n *= 2) sum.add(ExactSum(sum));
  return sum;
}

TEST(Step, carries_are_those_of_the_sums) {
  std::vector<ExactSum> all = sums();
  all.push_back(at_the_bound(0x1.fffffffffffffp0));
  all.push_back(at_the_bound(-0x1.fffffffffffffp-700));
  std::vector<std::int64_t> counters;
  for (const ExactSum& sum : all) counters.insert(counters.end(), sum.counters().begin(), sum.counters().end());
  carry_sums({.counters = counters.data(), .sums = static_cast<int>(all.size())}, host_stream);
  for (std::size_t s = 0; s < all.size(); ++s) {
    all[s].carry();
    for (std::size_t i = 0; i < ExactSum::num_counters; ++i)
      EXPECT_EQ(counters[s * ExactSum::num_counters + i], all[s].counters()[i]) << s << " " << i;
  }
}

TEST(Step, units_at_the_bound_are_added) {
  ExactSum all;
  std::int64_t flag = 0;
  constexpr double x = 0x1.fffffffffffffp0;
  for (int units = 1; units <= 64; ++units) {  // without the carry, the digits overflow at the third
    ExactSum unit = at_the_bound(x);
    accumulate_norm({.unit = unit.counters().data(), .all = all.counters().data(), .flag = &flag}, host_stream);
    EXPECT_EQ(unit.value(), 0);
    ExactSum wanted;
    for (int u = 0; u < units; ++u) wanted.add(std::ldexp(x, 30));
    EXPECT_EQ(all.value(), wanted.value()) << units;
  }
}

TEST(Step, a_skipped_update_changes_nothing) {
  std::vector<float> p = {1, 2}, m = {3, 4}, v = {5, 6}, g = {7, 8};
  const std::vector<float> before[] = {p, m, v};
  const AdamWScalars scalars{.learning_rate = 1};
  const UpdateDecision decision{.skip = 1};
  const Shape n{2};
  const UpdateSegment all{0, 2};
  const UpdateArgs update{.param = {p.data(), n}, .grad = {g.data(), n}, .decision = &decision, .segments = {&all, 1}};
  adamw({.update = update, .exp_avg = {m.data(), n}, .exp_avg_sq = {v.data(), n}, .scalars = &scalars}, host_stream);
  const SgdScalars sgd_scalars{.learning_rate = 1};
  sgd({.update = update, .momentum_buffer = {m.data(), n}, .scalars = &sgd_scalars}, host_stream);
  EXPECT_EQ(p, before[0]);
  EXPECT_EQ(m, before[1]);
  EXPECT_EQ(v, before[2]);
}

}  // namespace
}  // namespace tessera::kernels
