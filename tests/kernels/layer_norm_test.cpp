// SPDX-License-Identifier: Apache-2.0
// LayerNorm against the formula in double; gradients by finite differences; in place, accumulate, absent views,
// threads.
#include "kernels/layer_norm.hpp"

#include "reference.hpp"

namespace tessera::kernels {
namespace {

constexpr double eps = 1e-5;
using Vector = std::vector<double>;

struct Size {
  std::int64_t rows, channels;
};
const Size sizes[] = {{1, 1}, {1, 7}, {3, 8}, {5, 33}, {17, 64}, {40, 100}, {130, 19}, {1100, 12}};

template <class T>
struct Problem {
  explicit Problem(Size s)
      : size(s),
        x(random_vector<T>(s.rows * s.channels, 1, 3)),
        weight(random_vector<T>(s.channels, 2)),
        bias(random_vector<T>(s.channels, 3)),
        dy(random_vector<T>(s.rows * s.channels, 4)),
        y(x.size()),
        mean(static_cast<std::size_t>(s.rows)),
        rstd(mean.size()),
        dx(x.size()),
        dweight(weight.size()),
        dbias(weight.size()) {
    for (auto& v : x) v += T(10);  // a mean that cancels
  }
  [[nodiscard]] Shape shape() const { return {size.rows, size.channels}; }
  void forward() {
    layer_norm_forward({.x = view(x, shape()),
                        .weight = view(weight),
                        .bias = view(bias),
                        .y = view(y, shape()),
                        .mean = view(mean),
                        .rstd = view(rstd),
                        .eps = eps},
                       host_stream);
  }
  void backward() {
    Workspace workspace(layer_norm_backward_workspace(size.channels, dtype_of<T>::value));
    layer_norm_backward({.dy = view(dy, shape()),
                         .x = view(x, shape()),
                         .weight = view(weight),
                         .mean = view(mean),
                         .rstd = view(rstd),
                         .dx = view(dx, shape()),
                         .add_to_dx = add_to_dx,
                         .dweight = view(dweight),
                         .dbias = view(dbias),
                         .accumulate = accumulate,
                         .workspace = workspace.view()},
                        host_stream);
    EXPECT_TRUE(workspace.intact());
  }
  Size size;
  std::vector<T> x, weight, bias, dy, y, mean, rstd, dx, dweight, dbias;
  bool add_to_dx = false, accumulate = false;
};

template <class T>
Vector wide(const std::vector<T>& v) {
  return {v.begin(), v.end()};
}

/// The formula in double, from the same inputs.
Vector reference(Size size, const Vector& x, const Vector& weight, const Vector& bias) {
  Vector y(x.size());
  for (std::int64_t r = 0; r < size.rows; ++r) {
    const double* row = &x[static_cast<std::size_t>(r * size.channels)];
    double mean = 0, variance = 0;
    for (std::int64_t c = 0; c < size.channels; ++c) mean += row[c] / static_cast<double>(size.channels);
    for (std::int64_t c = 0; c < size.channels; ++c)
      variance += (row[c] - mean) * (row[c] - mean) / static_cast<double>(size.channels);
    for (std::int64_t c = 0; c < size.channels; ++c) {
      const auto i = static_cast<std::size_t>(c);
      y[static_cast<std::size_t>(r * size.channels + c)] =
          (row[c] - mean) / std::sqrt(variance + eps) * weight[i] + bias[i];
    }
  }
  return y;
}

TEST(LayerNorm, ForwardMatches) {
  for (const Isa set : instruction_sets()) {
    const Setting setting(1, set);
    for (const Size size : sizes) {
      Problem<float> p(size);
      Problem<double> d(size);
      p.forward();
      d.forward();
      EXPECT_LT(relative_error(p.y, reference(size, wide(p.x), wide(p.weight), wide(p.bias))), 4e-6)
          << name_of(set) << " " << size.rows << " " << size.channels;
      EXPECT_LT(relative_error(d.y, reference(size, d.x, d.weight, d.bias)), 1e-13) << name_of(set);
    }
  }
}

TEST(LayerNorm, GradientsByFiniteDifferences) {
  for (const Isa set : instruction_sets()) {
    const Setting setting(1, set);
    for (const Size size : {Size{1, 7}, Size{5, 33}, Size{40, 10}}) {
      Problem<double> p(size);
      p.forward();
      p.backward();
      const auto loss = [&] {
        const Vector y = reference(size, p.x, p.weight, p.bias);
        double sum = 0;
        for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * p.dy[i];
        return sum;
      };
      const auto check = [&](Vector& v, const Vector& gradient) {
        for (std::size_t i = 0; i < v.size(); i += 1 + v.size() / 40) {
          const double keep = v[i], h = 1e-5;
          v[i] = keep + h;
          const double up = loss();
          v[i] = keep - h;
          const double down = loss();
          v[i] = keep;
          EXPECT_NEAR(gradient[i], (up - down) / (2 * h), 1e-6) << i;
        }
      };
      check(p.x, p.dx);
      check(p.weight, p.dweight);
      check(p.bias, p.dbias);
    }
  }
}

TEST(LayerNorm, FloatGradientsAreNearDoubleOnes) {
  for (const Isa set : instruction_sets()) {
    const Setting setting(1, set);
    for (const Size size : sizes) {
      if (size.channels < 2) continue;
      Problem<float> p(size);
      p.forward();
      p.backward();
      Problem<double> d(size);
      d.x = wide(p.x), d.weight = wide(p.weight), d.dy = wide(p.dy);
      d.forward();
      d.backward();
      EXPECT_LT(relative_error(p.dx, d.dx), 2e-5) << name_of(set) << " " << size.rows << " " << size.channels;
      EXPECT_LT(relative_error(p.dweight, d.dweight), 2e-5) << name_of(set);
      EXPECT_LT(relative_error(p.dbias, d.dbias), 2e-5) << name_of(set);
    }
  }
}

TEST(LayerNorm, ApplyGivesTheForwardBits) {
  for (const Isa set : instruction_sets()) {
    const Setting setting(2, set);
    for (const Size size : sizes) {
      Problem<float> p(size);
      p.forward();
      std::vector<float> again(p.y.size());
      layer_norm_apply({.x = view(p.x, p.shape()),
                        .weight = view(p.weight),
                        .bias = view(p.bias),
                        .mean = view(p.mean),
                        .rstd = view(p.rstd),
                        .y = view(again, p.shape())},
                       host_stream);
      EXPECT_EQ(again, p.y);
    }
  }
}

TEST(LayerNorm, InPlaceWithoutStatistics) {
  Problem<float> p({37, 50});
  p.forward();
  auto x = p.x;
  layer_norm_forward(
      {.x = view(x, p.shape()), .weight = view(p.weight), .bias = view(p.bias), .y = view(x, p.shape()), .eps = eps},
      host_stream);
  EXPECT_EQ(x, p.y);
}

TEST(LayerNorm, GradientInPlaceAddedAndAccumulated) {
  Problem<double> p({37, 50}), q({37, 50});
  p.forward();
  p.backward();
  q.forward();
  q.dx = p.dy;  // dx is dy
  {
    Workspace workspace(layer_norm_backward_workspace(50, DType::f64));
    layer_norm_backward({.dy = view(q.dx, q.shape()),
                         .x = view(q.x, q.shape()),
                         .weight = view(q.weight),
                         .mean = view(q.mean),
                         .rstd = view(q.rstd),
                         .dx = view(q.dx, q.shape()),
                         .dweight = view(q.dweight),
                         .dbias = view(q.dbias),
                         .workspace = workspace.view()},
                        host_stream);
  }
  EXPECT_EQ(q.dx, p.dx);
  EXPECT_EQ(q.dweight, p.dweight);
  const Vector residual = random_vector<double>(37 * 50, 9), old_weight = random_vector<double>(50, 10),
               old_bias = random_vector<double>(50, 11);
  q.dx = residual, q.dweight = old_weight, q.dbias = old_bias;
  q.add_to_dx = q.accumulate = true;
  q.backward();
  for (std::size_t i = 0; i < q.dx.size(); ++i) EXPECT_EQ(q.dx[i], residual[i] + p.dx[i]);
  for (std::size_t i = 0; i < 50; ++i) {
    EXPECT_NEAR(q.dweight[i], old_weight[i] + p.dweight[i], 1e-12);
    EXPECT_NEAR(q.dbias[i], old_bias[i] + p.dbias[i], 1e-12);
  }
}

/// Views of gradients that are wanted; the others are absent.
template <class T>
void backward_of(Problem<T>& p, bool dx, bool dweight, bool dbias) {
  Workspace workspace(dweight || dbias ? layer_norm_backward_workspace(p.size.channels, dtype_of<T>::value) : 0);
  layer_norm_backward({.dy = view(p.dy, p.shape()),
                       .x = view(p.x, p.shape()),
                       .weight = view(p.weight),
                       .mean = view(p.mean),
                       .rstd = view(p.rstd),
                       .dx = dx ? view(p.dx, p.shape()) : TensorView{},
                       .add_to_dx = p.add_to_dx,
                       .dweight = dweight ? view(p.dweight) : TensorView{},
                       .dbias = dbias ? view(p.dbias) : TensorView{},
                       .accumulate = p.accumulate,
                       .workspace = workspace.view()},
                      host_stream);
  EXPECT_TRUE(workspace.intact());
}

template <class T>
void expect_the_same_bits_of_any_part(Size size) {
  for (const bool add : {false, true}) {
    Problem<T> full(size);
    full.add_to_dx = full.accumulate = add;
    full.forward();
    const auto old_dx = full.dx = random_vector<T>(size.rows * size.channels, 9);
    const auto old_dweight = full.dweight = random_vector<T>(size.channels, 10);
    const auto old_dbias = full.dbias = random_vector<T>(size.channels, 11);
    Problem<T> part = full;
    full.backward();
    for (int set = 0; set < 8; ++set) {
      part.dx = old_dx, part.dweight = old_dweight, part.dbias = old_dbias;
      backward_of(part, set & 1, set & 2, set & 4);
      EXPECT_EQ(part.dx, set & 1 ? full.dx : old_dx) << size.rows << " " << size.channels << " " << set;
      EXPECT_EQ(part.dweight, set & 2 ? full.dweight : old_dweight) << size.channels << " " << set;
      EXPECT_EQ(part.dbias, set & 4 ? full.dbias : old_dbias) << size.channels << " " << set;
    }
  }
}

TEST(LayerNorm, PartOfTheGradientsHasTheBitsOfAll) {
  for (const Isa set : instruction_sets()) {
    SCOPED_TRACE(name_of(set));
    const Setting setting(2, set);
    for (const Size size : sizes) {
      expect_the_same_bits_of_any_part<float>(size);
      expect_the_same_bits_of_any_part<double>(size);
    }
  }
}

TEST(LayerNorm, NumberOfThreadsChangesNoBit) {
  for (const Size size : {Size{1, 7}, Size{130, 19}, Size{1100, 12}}) {
    Problem<float> one(size);
    one.forward();
    one.backward();
    for (const int num : {2, 3}) {
      const Setting setting(num);
      Problem<float> p(size);
      p.forward();
      p.backward();
      EXPECT_EQ(p.y, one.y);
      EXPECT_EQ(p.dx, one.dx);
      EXPECT_EQ(p.dweight, one.dweight);
      EXPECT_EQ(p.dbias, one.dbias);
    }
  }
}

TEST(LayerNorm, NoRowsGiveZeroGradients) {
  Problem<float> p({0, 5});
  p.dweight.assign(5, 7.0F), p.dbias.assign(5, 7.0F);
  // An absent view is a null pointer; nothing of an empty tensor is read.
  p.x.reserve(1), p.dy.reserve(1), p.dx.reserve(1), p.y.reserve(1), p.mean.reserve(1), p.rstd.reserve(1);
  p.forward();
  p.backward();
  EXPECT_EQ(p.dweight, std::vector<float>(5, 0.0F));
  EXPECT_EQ(p.dbias, std::vector<float>(5, 0.0F));
}

TEST(LayerNorm, ShapesAreChecked) {
  Problem<float> p({4, 6});
  p.weight.resize(5);
  EXPECT_THROW(p.forward(), std::logic_error);
}

}  // namespace
}  // namespace tessera::kernels
