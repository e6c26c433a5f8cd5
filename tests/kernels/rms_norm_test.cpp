// SPDX-License-Identifier: Apache-2.0
// RMSNorm against the formula in double, gradients by finite differences; groups in rows,
// strides, in place, accumulate, threads.
#include "kernels/rms_norm.hpp"

#include "reference.hpp"

namespace tessera::kernels {
namespace {

constexpr double eps = 1e-3;

/// Rows of `groups` groups of `channels`, in a matrix that is `gap` columns wider.
struct Size {
  std::int64_t rows, groups, channels, gap;
  [[nodiscard]] std::int64_t width() const { return groups * channels; }
  [[nodiscard]] std::int64_t stride() const { return width() + gap; }
};
const Size sizes[] = {{1, 1, 1, 0},    {3, 1, 7, 0},     {5, 1, 64, 0},  {17, 3, 10, 5},
                      {130, 2, 19, 1}, {1100, 1, 12, 0}, {4, 5, 128, 64}};

template <class T>
struct Problem {
  explicit Problem(Size s)
      : size(s),
        x(random_vector<T>(s.rows * s.stride(), 1, 2)),
        weight(random_vector<T>(s.channels, 2)),
        dy(random_vector<T>(s.rows * s.stride(), 3)),
        y(x.size(), T(7)),
        rstd(static_cast<std::size_t>(s.rows * s.groups)),
        dx(x.size(), T(7)),
        dweight(weight.size()) {}
  TensorView matrix(std::vector<T>& v) { return {v.data(), Shape{size.rows, size.width()}}; }
  void forward(std::vector<T>& to) {
    rms_norm_forward({.x = matrix(x),
                      .weight = view(weight),
                      .y = matrix(to),
                      .rstd = view(rstd),
                      .eps = eps,
                      .weight_offset = offset,
                      .stride_x = size.stride(),
                      .stride_y = size.stride()},
                     host_stream);
  }
  /// Wanted: dx (1), dweight (2).
  void backward(std::vector<T>& d, std::vector<T>& to, int wanted = 3) {
    Workspace workspace(wanted & 2 ? rms_norm_backward_workspace(size.channels, dtype_of<T>::value) : 0);
    rms_norm_backward({.dy = matrix(d),
                       .x = matrix(x),
                       .weight = view(weight),
                       .rstd = view(rstd),
                       .dx = wanted & 1 ? matrix(to) : TensorView{},
                       .add_to_dx = add_to_dx,
                       .dweight = wanted & 2 ? view(dweight) : TensorView{},
                       .accumulate = accumulate,
                       .workspace = workspace.view(),
                       .weight_offset = offset,
                       .stride_dy = size.stride(),
                       .stride_x = size.stride(),
                       .stride_dx = size.stride()},
                      host_stream);
    EXPECT_TRUE(workspace.intact());
  }
  /// Σ dy·y by the formula.
  [[nodiscard]] double scalar() const {
    double sum = 0;
    for (std::int64_t r = 0; r < size.rows; ++r)
      for (std::int64_t g = 0; g < size.groups; ++g) {
        const auto first = static_cast<std::size_t>(r * size.stride() + g * size.channels);
        double square = 0;
        for (std::size_t c = 0; c < weight.size(); ++c)
          square += static_cast<double>(x[first + c]) * static_cast<double>(x[first + c]);
        const double scale = 1 / std::sqrt(square / static_cast<double>(size.channels) + eps);
        for (std::size_t c = 0; c < weight.size(); ++c)
          sum += static_cast<double>(dy[first + c]) * static_cast<double>(x[first + c]) * scale *
                 (static_cast<double>(weight[c]) + offset);
      }
    return sum;
  }
  [[nodiscard]] double dot_of(const std::vector<T>& result) const {
    double sum = 0;
    for (std::int64_t r = 0; r < size.rows; ++r)
      for (std::int64_t c = 0; c < size.width(); ++c) {
        const auto i = static_cast<std::size_t>(r * size.stride() + c);
        sum += static_cast<double>(dy[i]) * static_cast<double>(result[i]);
      }
    return sum;
  }
  Size size;
  std::vector<T> x, weight, dy, y, rstd, dx, dweight;
  bool add_to_dx = false, accumulate = false;
  double offset = no_weight_offset;
};

template <class T>
void gap_is_untouched(const Problem<T>& p, const std::vector<T>& v) {
  for (std::int64_t r = 0; r < p.size.rows; ++r)
    for (std::int64_t c = p.size.width(); c < p.size.stride(); ++c)
      EXPECT_EQ(v[static_cast<std::size_t>(r * p.size.stride() + c)], T(7));
}

TEST(RmsNorm, MatchesTheFormulaAndItsSlopes) {
  for (const Isa set : instruction_sets())
    for (const Size& size : sizes) {
      const Setting setting(1, set);
      SCOPED_TRACE(name_of(set));
      Problem<double> p(size);
      if (size.rows % 2 == 1) p.offset = 1;
      p.forward(p.y);
      p.backward(p.dy, p.dx);
      gap_is_untouched(p, p.y);
      gap_is_untouched(p, p.dx);
      EXPECT_NEAR(p.dot_of(p.y), p.scalar(), 1e-11 * (1 + std::abs(p.scalar())));
      const double h = 1e-6;
      const auto slope = [&](double& at) {
        const double before = at;
        at = before + h;
        const double above = p.scalar();
        at = before - h;
        const double below = p.scalar();
        at = before;
        return (above - below) / (2 * h);
      };
      for (std::int64_t c = 0; c < std::min<std::int64_t>(size.width(), 9); ++c) {
        const auto i = static_cast<std::size_t>((size.rows - 1) * size.stride() + c);
        EXPECT_NEAR(p.dx[i], slope(p.x[i]), 1e-6 * (1 + std::abs(p.dx[i])));
      }
      for (std::size_t c = 0; c < std::min<std::size_t>(p.weight.size(), 5); ++c)
        EXPECT_NEAR(p.dweight[c], slope(p.weight[c]), 1e-6 * (1 + std::abs(p.dweight[c])));
    }
}

TEST(RmsNorm, FloatsAreDoublesRounded) {
  for (const Isa set : instruction_sets())
    for (const Size& size : sizes) {
      const Setting setting(1, set);
      Problem<double> wide(size);
      Problem<float> p(size);
      wide.forward(wide.y);
      wide.backward(wide.dy, wide.dx);
      p.forward(p.y);
      p.backward(p.dy, p.dx);
      EXPECT_LE(relative_error(p.y, wide.y), 2e-6);
      EXPECT_LE(relative_error(p.dx, wide.dx),
                size.channels > 1 ? 5e-6 : 5e-3);  // of one channel almost everything cancels
      EXPECT_LE(relative_error(p.dweight, wide.dweight), 5e-6);
    }
}

TEST(RmsNorm, InPlaceAgainAndAnyNumberOfThreads) {
  for (const Size& size : sizes) {
    Problem<float> p(size);
    p.forward(p.y);
    p.backward(p.dy, p.dx);
    const auto y = p.y, dx = p.dx, dweight = p.dweight;
    for (const int num : {1, 2, 3}) {
      const Setting setting(num);
      auto gradient = p.dy;
      p.backward(gradient, gradient);  // dx over dy
      EXPECT_EQ(p.dweight, dweight);
      for (std::int64_t r = 0; r < size.rows; ++r)
        for (std::int64_t c = 0; c < size.width(); ++c) {
          const auto i = static_cast<std::size_t>(r * size.stride() + c);
          ASSERT_EQ(gradient[i], dx[i]);
        }
      if (size.gap > 0) continue;
      std::vector<float> again(y.size());
      rms_norm_apply({.x = p.matrix(p.x), .weight = view(p.weight), .rstd = view(p.rstd), .y = p.matrix(again)},
                     host_stream);
      EXPECT_EQ(again, y);
    }
  }
}

template <class T>
void expect_the_same_bits_of_any_part(const Size& size) {
  for (const bool add : {false, true}) {
    Problem<T> full(size);
    full.add_to_dx = full.accumulate = add;
    full.forward(full.y);
    full.dweight = random_vector<T>(size.channels, 10);
    Problem<T> part = full;
    const auto old_dx = full.dx, old_dweight = full.dweight;
    full.backward(full.dy, full.dx);
    for (int wanted = 0; wanted < 4; ++wanted) {
      part.dx = old_dx, part.dweight = old_dweight;
      part.backward(part.dy, part.dx, wanted);
      EXPECT_EQ(part.dx, wanted & 1 ? full.dx : old_dx) << size.rows << " " << size.channels << " " << wanted;
      EXPECT_EQ(part.dweight, wanted & 2 ? full.dweight : old_dweight) << size.channels << " " << wanted;
    }
  }
}

TEST(RmsNorm, PartOfTheGradientsHasTheBitsOfAll) {
  for (const Isa set : instruction_sets())
    for (const Size& size : sizes) {
      const Setting setting(2, set);
      SCOPED_TRACE(name_of(set));
      expect_the_same_bits_of_any_part<float>(size);
      expect_the_same_bits_of_any_part<double>(size);
    }
}

TEST(RmsNorm, AddsWhereAsked) {
  Problem<double> p({20, 1, 9, 0});
  p.forward(p.y);
  p.backward(p.dy, p.dx);
  const auto dx = p.dx, dweight = p.dweight;
  p.add_to_dx = p.accumulate = true;
  p.backward(p.dy, p.dx);
  for (std::size_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(p.dx[i], 2 * dx[i], 1e-12);
  for (std::size_t i = 0; i < dweight.size(); ++i) EXPECT_NEAR(p.dweight[i], 2 * dweight[i], 1e-12);
}

TEST(RmsNorm, NoRowsGiveNoGradient) {
  std::vector<float> none, weight(3, 1.0F), dweight(3, 5.0F);
  Workspace workspace(rms_norm_backward_workspace(3, DType::f32));
  const TensorView empty{none.data(), Shape{0, 3}};
  rms_norm_backward({.dy = empty,
                     .x = empty,
                     .weight = view(weight),
                     .rstd = {none.data(), Shape{0}},
                     .dx = empty,
                     .dweight = view(dweight),
                     .workspace = workspace.view()},
                    host_stream);
  EXPECT_EQ(dweight, std::vector<float>(3, 0.0F));
}

TEST(RmsNorm, ShapesAreChecked) {
  std::vector<float> x(10), weight(3);
  EXPECT_THROW(rms_norm_forward({.x = view(x, {2, 5}), .weight = view(weight), .y = view(x, {2, 5})}, host_stream),
               std::logic_error);
}

}  // namespace
}  // namespace tessera::kernels
