// SPDX-License-Identifier: Apache-2.0
// Rotary positions: the formula in double, the inverse rotation, listed positions, columns of a wider matrix.
#include "kernels/rope.hpp"

#include "reference.hpp"

namespace tessera::kernels {
namespace {

const std::vector<double> frequencies = {1.0, 0.31, 0.02, 1e-4, 0.5};  // d = 10
constexpr std::int64_t d = 10, half = 5;

template <class T>
std::vector<T> table(std::int64_t positions, double scale) {
  std::vector<T> t(static_cast<std::size_t>(positions * d));
  rope_table({.inv_freq = frequencies, .scale = scale, .positions = {}, .table = view(t, {positions, d})}, host_stream);
  return t;
}

/// Rows of `heads` heads, 3 columns apart from the next row.
template <class T>
void rotates(std::int64_t rows, std::int64_t heads, const std::vector<std::int32_t>& positions, double tolerance,
             RotaryPairs pairs = RotaryPairs::rotate_half) {
  const std::int64_t table_rows = 7, stride = heads * d + 3;
  const double scale = 1.25;
  auto turn = table<T>(table_rows, scale);
  const auto before = random_vector<T>(rows * stride, 5);
  auto x = before;
  const auto listed = positions;
  const RopeArgs args{.x = {x.data(), Shape{rows, heads * d}},
                      .head_dim = d,
                      .stride = stride,
                      .table = view(turn, {table_rows, d}),
                      .positions = positions.empty() ? TensorView{} : TensorView{listed.data(), Shape{rows}},
                      .pairs = pairs};
  rope(args, host_stream);
  for (std::int64_t r = 0; r < rows; ++r) {
    const double p = static_cast<double>(positions.empty() ? r % table_rows : positions[static_cast<std::size_t>(r)]);
    for (std::int64_t c = 0; c < stride; ++c) {
      const auto i = static_cast<std::size_t>(r * stride + c);
      const bool interleaved = pairs == RotaryPairs::interleaved;
      const std::int64_t j = interleaved ? c % d / 2 : c % d % half;
      if (c >= heads * d) {
        EXPECT_EQ(x[i], before[i]);
        continue;
      }
      const double angle = p * frequencies[static_cast<std::size_t>(j)];
      const bool low = interleaved ? c % d % 2 == 0 : c % d < half;
      const std::size_t apart = interleaved ? 1 : half;
      const auto own = static_cast<double>(before[i]), other = static_cast<double>(before[low ? i + apart : i - apart]);
      EXPECT_NEAR(static_cast<double>(x[i]), scale * (own * std::cos(angle) + (low ? -1 : 1) * other * std::sin(angle)),
                  tolerance);
    }
  }
  auto back = args;  // the transpose, which is the inverse times scale²
  back.rotation = Rotation::backward;
  rope(back, host_stream);
  for (std::int64_t i = 0; i < rows * stride; ++i)
    EXPECT_NEAR(static_cast<double>(x[static_cast<std::size_t>(i)]),
                static_cast<double>(before[static_cast<std::size_t>(i)]) * (i % stride < heads * d ? scale * scale : 1),
                4 * tolerance);
}

TEST(Rope, TurnsAndTurnsBack) {
  for (const Isa set : instruction_sets()) {
    const Setting setting(1, set);
    SCOPED_TRACE(name_of(set));
    rotates<double>(14, 3, {}, 1e-13);
    rotates<float>(14, 3, {}, 2e-6);
    rotates<float>(5, 1, {6, 0, 0, 3, 2}, 2e-6);
    rotates<double>(14, 3, {}, 1e-13, RotaryPairs::interleaved);
    rotates<float>(5, 1, {6, 0, 0, 3, 2}, 2e-6, RotaryPairs::interleaved);
  }
}

TEST(Rope, ATableOfListedPositionsHasTheRowsOfTheFullTable) {
  const auto full = table<float>(900, 1);
  const std::vector<std::int32_t> positions = {899, 0, 5, 5};
  std::vector<float> some(positions.size() * d);
  rope_table({.inv_freq = frequencies, .positions = {positions.data(), Shape{4}}, .table = view(some, {4, d})},
             host_stream);
  for (std::size_t r = 0; r < positions.size(); ++r)
    for (std::size_t c = 0; c < d; ++c)
      EXPECT_EQ(some[r * d + c], full[static_cast<std::size_t>(positions[r]) * d + c]);
}

TEST(Rope, AnyNumberOfThreadsGivesTheSameBits) {
  auto turn = table<float>(50, 1);
  auto one = random_vector<float>(200 * 20, 8), three = one;
  for (auto* x : {&one, &three}) {
    const Setting setting(x == &one ? 1 : 3);
    rope({.x = view(*x, {200, 20}), .head_dim = d, .table = view(turn, {50, d})}, host_stream);
  }
  EXPECT_EQ(one, three);
}

TEST(Rope, ShapesAreChecked) {
  std::vector<float> x(30), turn(20);
  EXPECT_THROW(rope({.x = view(x, {2, 15}), .head_dim = d, .table = view(turn, {2, d})}, host_stream),
               std::logic_error);
}

}  // namespace
}  // namespace tessera::kernels
