// SPDX-License-Identifier: Apache-2.0
// LayerNorm and RMSNorm of bf16 and f16 against the fp32 kernels on the same values: statistics in fp32, results
// rounded once, gradients of weights in fp32 or rounded once; any number of threads.
#include "kernels/layer_norm.hpp"
#include "kernels/rms_norm.hpp"

#include <cstring>

#include "reference_16bit.hpp"

namespace tessera::kernels {
namespace {

TYPED_TEST_SUITE(SixteenBit, SixteenBitTypes);

constexpr std::int64_t rows = 37;

/// One LayerNorm, forward and backward, of storage T and weight gradients G.
template <class T, class G = T>
struct Layer {
  explicit Layer(std::int64_t channels)
      : c(channels),
        x(random_16bit<T>(rows * c, 1, 3)),
        dy(random_16bit<T>(rows * c, 2)),
        weight(random_16bit<T>(c, 3)),
        bias(random_16bit<T>(c, 4)),
        y(x),
        dx(random_16bit<T>(rows * c, 5)),
        dweight(random_16bit<G>(c, 6)),
        dbias(random_16bit<G>(c, 7)) {}
  template <class S>
  explicit Layer(const S& other)
      : c(other.c),
        x(widened(other.x)),
        dy(widened(other.dy)),
        weight(widened(other.weight)),
        bias(widened(other.bias)),
        y(x),
        dx(widened(other.dx)),
        dweight(widened(other.dweight)),
        dbias(widened(other.dbias)) {}
  /// Wanted: dx (1), dweight (2), dbias (4).
  void run(bool add, int wanted = 7) {
    layer_norm_forward({.x = view(x, {rows, c}),
                        .weight = view(weight),
                        .bias = view(bias),
                        .y = view(y, {rows, c}),
                        .mean = view(mean),
                        .rstd = view(rstd)},
                       host_stream);
    auto again = y;
    layer_norm_apply({.x = view(x, {rows, c}),
                      .weight = view(weight),
                      .bias = view(bias),
                      .mean = view(mean),
                      .rstd = view(rstd),
                      .y = view(again, {rows, c})},
                     host_stream);
    EXPECT_EQ(std::memcmp(again.data(), y.data(), y.size() * sizeof(T)), 0);
    Workspace workspace(layer_norm_backward_workspace(c, dtype_of<T>::value));
    layer_norm_backward({.dy = view(dy, {rows, c}),
                         .x = view(x, {rows, c}),
                         .weight = view(weight),
                         .mean = view(mean),
                         .rstd = view(rstd),
                         .dx = wanted & 1 ? view(dx, {rows, c}) : TensorView{},
                         .add_to_dx = add,
                         .dweight = wanted & 2 ? view(dweight) : TensorView{},
                         .dbias = wanted & 4 ? view(dbias) : TensorView{},
                         .accumulate = add,
                         .workspace = workspace.view()},
                        host_stream);
    EXPECT_TRUE(workspace.intact());
  }
  std::int64_t c;
  std::vector<T> x, dy, weight, bias, y, dx;
  std::vector<G> dweight, dbias;
  std::vector<float> mean = std::vector<float>(rows), rstd = std::vector<float>(rows);
};

/// The same of an RMSNorm of two groups in a row.
template <class T, class G = T>
struct Rms {
  explicit Rms(std::int64_t channels)
      : c(channels),
        x(random_16bit<T>(rows * 2 * c, 1, 3)),
        dy(random_16bit<T>(rows * 2 * c, 2)),
        weight(random_16bit<T>(c, 3)),
        y(x),
        dx(random_16bit<T>(rows * 2 * c, 5)),
        dweight(random_16bit<G>(c, 6)) {}
  template <class S>
  explicit Rms(const S& other)
      : c(other.c),
        x(widened(other.x)),
        dy(widened(other.dy)),
        weight(widened(other.weight)),
        y(x),
        dx(widened(other.dx)),
        dweight(widened(other.dweight)) {}
  void run(bool add, int wanted = 7) {
    rms_norm_forward(
        {.x = view(x, {rows, 2 * c}), .weight = view(weight), .y = view(y, {rows, 2 * c}), .rstd = view(rstd)},
        host_stream);
    auto again = y;
    rms_norm_apply(
        {.x = view(x, {rows, 2 * c}), .weight = view(weight), .rstd = view(rstd), .y = view(again, {rows, 2 * c})},
        host_stream);
    EXPECT_EQ(std::memcmp(again.data(), y.data(), y.size() * sizeof(T)), 0);
    Workspace workspace(rms_norm_backward_workspace(c, dtype_of<T>::value));
    rms_norm_backward({.dy = view(dy, {rows, 2 * c}),
                       .x = view(x, {rows, 2 * c}),
                       .weight = view(weight),
                       .rstd = view(rstd),
                       .dx = wanted & 1 ? view(dx, {rows, 2 * c}) : TensorView{},
                       .add_to_dx = add,
                       .dweight = wanted & 2 ? view(dweight) : TensorView{},
                       .accumulate = add,
                       .workspace = workspace.view()},
                      host_stream);
    EXPECT_TRUE(workspace.intact());
  }
  std::int64_t c;
  std::vector<T> x, dy, weight, y, dx;
  std::vector<G> dweight;
  std::vector<float> rstd = std::vector<float>(2 * rows);
};

/// Tolerance relative to the largest result: sums over a row may have another order than in fp32.
constexpr double order = 1e-6;

template <template <class, class> class Norm, class T>
void agrees() {
  for (const Isa set : instruction_sets())
    for (const std::int64_t channels : {1, 17, 1030})
      for (const bool add : {false, true}) {
        const Setting setting(1, set);
        SCOPED_TRACE(std::string(name_of(set)) + " " + std::to_string(channels));
        Norm<T, T> narrow(channels);
        Norm<T, float> mixed(channels);
        mixed.dweight = widened(narrow.dweight);
        if constexpr (requires { mixed.dbias; }) mixed.dbias = widened(narrow.dbias);
        Norm<float, float> wide(narrow);
        narrow.run(add), mixed.run(add), wide.run(add);
        expect_rounded(narrow.y, wide.y);
        EXPECT_EQ(narrow.rstd, wide.rstd);
        expect_near_rounded(narrow.dx, wide.dx, order);
        EXPECT_LT(relative_error(mixed.dweight, wide.dweight), order);
        expect_rounded(narrow.dweight, mixed.dweight);
        if constexpr (requires { mixed.dbias; }) {
          EXPECT_EQ(narrow.mean, wide.mean);
          EXPECT_EQ(mixed.dbias, wide.dbias);
          expect_rounded(narrow.dbias, wide.dbias);
        }
        Norm<T, T> threaded(channels);
        const Setting three(3, set);
        threaded.run(add);
        EXPECT_EQ(widened(threaded.dweight), widened(narrow.dweight));
        EXPECT_EQ(widened(threaded.dx), widened(narrow.dx));
        for (int wanted = 0; wanted < 8; ++wanted) {
          Norm<T, T> part(channels), before(channels);
          part.run(add, wanted);
          EXPECT_EQ(widened(part.dx), widened(wanted & 1 ? narrow.dx : before.dx)) << wanted;
          EXPECT_EQ(widened(part.dweight), widened(wanted & 2 ? narrow.dweight : before.dweight)) << wanted;
          if constexpr (requires { part.dbias; }) {
            EXPECT_EQ(widened(part.dbias), widened(wanted & 4 ? narrow.dbias : before.dbias)) << wanted;
          }
        }
      }
}

TYPED_TEST(SixteenBit, LayerNorm) { agrees<Layer, TypeParam>(); }
TYPED_TEST(SixteenBit, RmsNorm) { agrees<Rms, TypeParam>(); }

TYPED_TEST(SixteenBit, StatisticsAreFp32) {
  auto x = random_16bit<TypeParam>(8, 1), weight = random_16bit<TypeParam>(4, 2), y = x,
       rstd = random_16bit<TypeParam>(2, 3);
  EXPECT_THROW(
      rms_norm_forward({.x = view(x, {2, 4}), .weight = view(weight), .y = view(y, {2, 4}), .rstd = view(rstd)},
                       host_stream),
      std::logic_error);
}

}  // namespace
}  // namespace tessera::kernels
