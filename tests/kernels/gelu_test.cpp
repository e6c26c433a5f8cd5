// SPDX-License-Identifier: Apache-2.0
// GELU against the formula in double, its slope by finite differences, all instruction sets, in place.
#include "kernels/gelu.hpp"

#include "reference.hpp"

namespace tessera::kernels {
namespace {

double gelu_of(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

template <class T>
std::vector<T> inputs(std::int64_t n) {
  auto x = random_vector<T>(n, 1, 2);
  const double extremes[] = {0.0, -0.0, 1e-8, -1e-8, 5, -5, 10, -10, 30, -30, 1e4, -1e4};
  for (std::size_t i = 0; i < x.size() && i < std::size(extremes); ++i) x[i] = static_cast<T>(extremes[i]);
  return x;
}

template <class T>
void matches(std::int64_t n, double tolerance) {
  auto x = inputs<T>(n), dy = random_vector<T>(n, 2);
  std::vector<T> y(x.size()), dx(x.size());
  gelu_forward({.x = view(x), .y = view(y)}, host_stream);
  gelu_backward({.x = view(x), .dy = view(dy), .dx = view(dx)}, host_stream);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = static_cast<double>(x[i]);
    EXPECT_NEAR(static_cast<double>(y[i]), gelu_of(v), tolerance * (1e-3 + std::abs(v))) << v;
    const double h = 1e-5, slope = std::abs(v) > 100 ? (v > 0 ? 1 : 0) : (gelu_of(v + h) - gelu_of(v - h)) / (2 * h);
    EXPECT_NEAR(static_cast<double>(dx[i]), slope * static_cast<double>(dy[i]),
                (5 * tolerance + 1e-9) * (1 + std::abs(static_cast<double>(dy[i]))))
        << v;
  }
}

TEST(Gelu, MatchesTheFormula) {
  for (const Isa set : instruction_sets()) {
    const Setting setting(1, set);
    for (const std::int64_t n : {1, 3, 7, 8, 15, 17, 1000}) {
      SCOPED_TRACE(name_of(set));
      matches<float>(n, 4e-7);
      matches<double>(n, 1e-14);
    }
  }
}

TEST(Gelu, InPlaceAndAnyNumberOfThreads) {
  const std::int64_t n = 3 * 4096 + 17;
  auto x = inputs<float>(n), dy = random_vector<float>(n, 3);
  std::vector<float> y(x.size()), dx(x.size());
  gelu_forward({.x = view(x), .y = view(y)}, host_stream);
  gelu_backward({.x = view(x), .dy = view(dy), .dx = view(dx)}, host_stream);
  for (const int num : {1, 2, 3}) {
    const Setting setting(num);
    auto in_place = x, gradient = dy;
    gelu_forward({.x = view(in_place), .y = view(in_place)}, host_stream);
    gelu_backward({.x = view(x), .dy = view(gradient), .dx = view(gradient)}, host_stream);
    EXPECT_EQ(in_place, y);
    EXPECT_EQ(gradient, dx);
  }
}

TEST(Gelu, NotANumberStaysOne) {
  for (const Isa set : instruction_sets()) {
    const Setting setting(1, set);
    std::vector<float> x(20, std::nanf("")), y(20), dy(20, 1.0F), dx(20);
    gelu_forward({.x = view(x), .y = view(y)}, host_stream);
    gelu_backward({.x = view(x), .dy = view(dy), .dx = view(dx)}, host_stream);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_TRUE(std::isnan(y[i]) && std::isnan(dx[i]));
  }
}

TEST(Gelu, ShapesAreChecked) {
  std::vector<float> x(4), y(5);
  EXPECT_THROW(gelu_forward({.x = view(x), .y = view(y)}, host_stream), std::logic_error);
}

}  // namespace
}  // namespace tessera::kernels
