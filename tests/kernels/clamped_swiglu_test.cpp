// SPDX-License-Identifier: Apache-2.0
// The clamped SwiGLU of gpt-oss: its formula, finite differences, the slopes at the limits, in place, any threads.
#include "kernels/clamped_swiglu.hpp"

#include "reference.hpp"

namespace tessera::kernels {
namespace {

constexpr GateLimits limits{.alpha = 1.702, .limit = 1.5};

double formula(double gate, double up) {
  const double g = std::min(gate, limits.limit), u = std::clamp(up, -limits.limit, limits.limit);
  return (u + 1) * g / (1 + std::exp(-limits.alpha * g));
}

template <class T>
void matches_formula(std::int64_t n, double tolerance) {
  auto x = random_vector<T>(2 * n, 1, 2), dy = random_vector<T>(n, 2);
  if (n > 3) x[0] = T(-1e4), x[2] = T(1e4), x[5] = T(-1e4);
  std::vector<T> y(dy.size()), dx(x.size());
  clamped_swiglu_forward({.gate_up = view(x), .y = view(y), .limits = limits}, host_stream);
  clamped_swiglu_backward({.gate_up = view(x), .dy = view(dy), .dgate_up = view(dx), .limits = limits}, host_stream);
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double g = static_cast<double>(x[2 * i]), u = static_cast<double>(x[2 * i + 1]), h = 1e-6,
                 d = static_cast<double>(dy[i]);
    EXPECT_NEAR(static_cast<double>(y[i]), formula(g, u), tolerance * (1 + std::abs(formula(g, u))));
    const double dgate = d * (formula(g + h, u) - formula(g - h, u)) / (2 * h),
                 dup = d * (formula(g, u + h) - formula(g, u - h)) / (2 * h), least = (tolerance + 1e-7) * 10;
    if (std::abs(g - limits.limit) > 1e-3) {
      EXPECT_NEAR(static_cast<double>(dx[2 * i]), dgate, least) << g << " " << u;
    }
    if (std::abs(std::abs(u) - limits.limit) > 1e-3) {
      EXPECT_NEAR(static_cast<double>(dx[2 * i + 1]), dup, least) << g << " " << u;
    }
  }
  for (const int threads : {1, 3}) {
    const Setting setting(threads);
    auto over = x;
    std::vector<T> again(y.size());
    clamped_swiglu_forward({.gate_up = view(x), .y = view(again), .limits = limits}, host_stream);
    clamped_swiglu_backward({.gate_up = view(over), .dy = view(dy), .dgate_up = view(over), .limits = limits},
                            host_stream);
    EXPECT_EQ(again, y);
    EXPECT_EQ(over, dx);
  }
}

TEST(ClampedSwiglu, MatchesTheFormula) {
  for (const Isa set : instruction_sets()) {
    const Setting setting(1, set);
    SCOPED_TRACE(name_of(set));
    for (const std::int64_t n : {0, 1, 7, 257, 2 * 4096 + 3}) {
      matches_formula<float>(n, 2e-6);
      matches_formula<double>(n, 1e-13);
    }
  }
}

TEST(ClampedSwiglu, HasASlopeAtTheLimitsAndNoneBeyond) {
  constexpr double at = 1.5, beyond = 1.5000001;
  std::vector<double> x = {at, at, beyond, 0, 0, beyond, 1, -at, 1, -beyond}, dy(5, 1.0), dx(10);
  clamped_swiglu_backward({.gate_up = view(x), .dy = view(dy), .dgate_up = view(dx), .limits = limits}, host_stream);
  EXPECT_NE(dx[0], 0);
  EXPECT_NE(dx[1], 0);
  EXPECT_EQ(dx[2], 0);
  EXPECT_EQ(dx[5], 0);
  EXPECT_NE(dx[7], 0);
  EXPECT_EQ(dx[9], 0);
}

TEST(ClampedSwiglu, RoundsSixteenBitsOnce) {
  for (const Isa set : instruction_sets()) {
    const Setting setting(1, set);
    std::vector<bf16> x, y(50);
    for (int i = 0; i < 100; ++i) x.emplace_back(0.07F * static_cast<float>(i - 50));
    clamped_swiglu_forward({{x.data(), DType::bf16, Shape{100}}, {y.data(), DType::bf16, Shape{50}}, limits},
                           host_stream);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const auto exact = formula(static_cast<float>(x[2 * i]), static_cast<float>(x[2 * i + 1]));
      EXPECT_NEAR(static_cast<float>(y[i]), exact, 1.01 / 256 * std::abs(exact));
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
