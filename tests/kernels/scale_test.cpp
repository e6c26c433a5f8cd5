// SPDX-License-Identifier: Apache-2.0
// Factors and soft caps against their formulas, on every instruction set, for any number of threads.
#include "kernels/scale.hpp"

#include "reference.hpp"

namespace tessera::kernels {
namespace {

template <class T>
void matches(std::int64_t n, double tolerance) {
  auto x = random_vector<T>(n, 1, 4);
  const double extremes[] = {0.0, 1e-8, -1e4, 1e4};
  for (std::size_t i = 0; i < x.size() && i < std::size(extremes); ++i) x[i] = static_cast<T>(extremes[i]);
  auto scaled = x, capped = x;
  scale({view(scaled), 0.37}, host_stream);
  soft_cap({view(capped), 2.5}, host_stream);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto before = static_cast<double>(x[i]), cap = 2.5 * std::tanh(before / 2.5);
    EXPECT_EQ(scaled[i], x[i] * static_cast<T>(0.37));
    EXPECT_NEAR(static_cast<double>(capped[i]), cap, tolerance * std::abs(cap)) << before;
  }
}

TEST(Scale, MatchesTheFormulas) {
  for (const Isa set : instruction_sets())
    for (const int threads : {1, 3}) {
      const Setting setting(threads, set);
      SCOPED_TRACE(name_of(set));
      for (const std::int64_t n : {0, 1, 7, 1000, 3 * 4096 + 17}) {
        matches<float>(n, 1e-6);
        matches<double>(n, 1e-14);
      }
    }
}

TEST(Scale, RoundsSixteenBitsOnce) {
  const Setting setting(1, instruction_sets().back());
  std::vector<bf16> x, expected;
  for (int i = 0; i < 100; ++i) {
    x.emplace_back(0.31F * static_cast<float>(i - 50));
    expected.emplace_back(static_cast<float>(x.back()) * 7.3F);
  }
  scale({{x.data(), DType::bf16, Shape{100}}, 7.3F}, host_stream);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(x[i].bits, expected[i].bits);
}

}  // namespace
}  // namespace tessera::kernels
