// SPDX-License-Identifier: Apache-2.0
// SwiGLU and GeGLU against the formula in double, its slopes by finite differences, all instruction sets, in place.
#include "kernels/swiglu.hpp"

#include "reference.hpp"

namespace tessera::kernels {
namespace {

/// silu, or GELU in its tanh form, as a sigmoid too: tanh would cancel.
double function(GateActivation f, double x) {
  const double u = f == GateActivation::silu ? x : 1.59576912160573071176 * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-u));
}

template <class T>
void matches(GateActivation activation, std::int64_t n, double tolerance) {
  const auto f = [activation](double x) { return function(activation, x); };
  auto gate = random_vector<T>(n, 1, 2), up = random_vector<T>(n, 2), dy = random_vector<T>(n, 3);
  const double extremes[] = {0.0, -0.0, 1e-8, -30, 30, 1e4, -1e4};
  for (std::size_t i = 0; i < gate.size() && i < std::size(extremes); ++i) gate[i] = static_cast<T>(extremes[i]);
  std::vector<T> y(gate.size()), dgate(gate.size()), dup(gate.size());
  swiglu_forward({.gate = view(gate), .up = view(up), .y = view(y), .activation = activation}, host_stream);
  swiglu_backward({.gate = view(gate),
                   .up = view(up),
                   .dy = view(dy),
                   .dgate = view(dgate),
                   .dup = view(dup),
                   .activation = activation},
                  host_stream);
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const auto g = static_cast<double>(gate[i]), u = static_cast<double>(up[i]), d = static_cast<double>(dy[i]);
    const double h = 1e-5, slope = std::abs(g) > 100 ? (g > 0 ? 1 : 0) : (f(g + h) - f(g - h)) / (2 * h);
    EXPECT_NEAR(static_cast<double>(y[i]), f(g) * u, tolerance * (1e-3 + std::abs(g * u))) << g;
    EXPECT_NEAR(static_cast<double>(dup[i]), f(g) * d, tolerance * (1e-3 + std::abs(g * d))) << g;
    EXPECT_NEAR(static_cast<double>(dgate[i]), slope * u * d, (5 * tolerance + 1e-9) * (1 + std::abs(u * d))) << g;
  }
}

TEST(Swiglu, MatchesTheFormula) {
  for (const Isa set : instruction_sets()) {
    const Setting setting(1, set);
    SCOPED_TRACE(name_of(set));
    for (const std::int64_t n : {1, 3, 8, 17, 1000}) {
      for (const GateActivation activation : {GateActivation::silu, GateActivation::gelu}) {
        matches<float>(activation, n, 6e-7);
        matches<double>(activation, n, 1e-14);
      }
    }
  }
}

TEST(Swiglu, InPlaceAndAnyNumberOfThreads) {
  const std::int64_t n = 3 * 4096 + 17;
  auto gate = random_vector<float>(n, 1), up = random_vector<float>(n, 2), dy = random_vector<float>(n, 3);
  std::vector<float> y(gate.size()), dgate(gate.size()), dup(gate.size());
  swiglu_forward({.gate = view(gate), .up = view(up), .y = view(y)}, host_stream);
  swiglu_backward({.gate = view(gate), .up = view(up), .dy = view(dy), .dgate = view(dgate), .dup = view(dup)},
                  host_stream);
  for (const int num : {1, 2, 3}) {
    const Setting setting(num);
    auto over_gate = gate, over_dy = dy;
    std::vector<float> other(gate.size());
    swiglu_forward({.gate = view(over_gate), .up = view(up), .y = view(over_gate)}, host_stream);
    swiglu_backward(
        {.gate = view(gate), .up = view(up), .dy = view(over_dy), .dgate = view(over_dy), .dup = view(other)},
        host_stream);
    EXPECT_EQ(over_gate, y);
    EXPECT_EQ(over_dy, dgate);
    EXPECT_EQ(other, dup);
  }
}

/// Columns of one matrix, in place, have the bits of contiguous operands.
template <class T>
void columns_are_bitwise_equal(std::int64_t rows, std::int64_t columns) {
  const std::int64_t n = rows * columns, wide = 2 * columns + 3;
  auto gate = random_vector<T>(n, 1), up = random_vector<T>(n, 2), dy = random_vector<T>(n, 3);
  std::vector<T> y(gate.size()), dgate(gate.size()), dup(gate.size()), both(static_cast<std::size_t>(rows * wide));
  swiglu_forward({.gate = view(gate), .up = view(up), .y = view(y)}, host_stream);
  swiglu_backward({.gate = view(gate), .up = view(up), .dy = view(dy), .dgate = view(dgate), .dup = view(dup)},
                  host_stream);
  const Shape shape{rows, columns};
  const auto at = [&](std::int64_t i, bool second) {
    return static_cast<std::size_t>(i / columns * wide + (second ? columns : 0) + i % columns);
  };
  for (std::int64_t i = 0; i < n; ++i)
    both[at(i, false)] = gate[static_cast<std::size_t>(i)], both[at(i, true)] = up[static_cast<std::size_t>(i)];
  for (const int num : {1, 2, 3}) {
    const Setting setting(num);
    auto over = both, forward = both;
    std::vector<T> other(y.size());
    const TensorView first(over.data(), shape), second(over.data() + columns, shape),
        gate_columns(forward.data(), shape), up_columns(forward.data() + columns, shape);
    swiglu_forward({.gate = gate_columns, .up = up_columns, .y = view(other, shape), .stride = wide}, host_stream);
    EXPECT_EQ(other, y);
    swiglu_forward({.gate = gate_columns, .up = up_columns, .y = gate_columns, .stride = wide, .stride_y = wide},
                   host_stream);
    swiglu_backward({.gate = first, .up = second, .dy = view(dy, shape), .dgate = first, .dup = second, .stride = wide},
                    host_stream);
    for (std::int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(forward[at(i, false)], y[static_cast<std::size_t>(i)]);
      ASSERT_EQ(over[at(i, false)], dgate[static_cast<std::size_t>(i)]);
      ASSERT_EQ(over[at(i, true)], dup[static_cast<std::size_t>(i)]);
    }
  }
}

TEST(Swiglu, ColumnsOfAWiderMatrix) {
  for (const Isa set : instruction_sets()) {
    const Setting setting(1, set);
    for (const std::int64_t columns : {1, 7, 33, 5000}) {
      columns_are_bitwise_equal<float>(5, columns);
      columns_are_bitwise_equal<double>(5, columns);
    }
  }
}

TEST(Swiglu, ShapesAreChecked) {
  std::vector<float> x(4), y(5);
  EXPECT_THROW(swiglu_forward({.gate = view(x), .up = view(y), .y = view(x)}, host_stream), std::logic_error);
}

}  // namespace
}  // namespace tessera::kernels
