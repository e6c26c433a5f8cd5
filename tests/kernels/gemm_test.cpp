// SPDX-License-Identifier: Apache-2.0
// GEMM against three loops in double, all transposes, alpha and beta, bias, any number of threads; what it refuses.
#include "kernels/gemm.hpp"

#include <cstring>

#include "reference.hpp"

namespace tessera::kernels {
namespace {

struct Case {
  std::int64_t m, n, k;
  bool trans_a, trans_b;
  double alpha, beta;
  bool with_bias;
};

template <class T>
double error_of(const Case& s) {
  auto a = random_vector<T>(s.m * s.k, 1), b = random_vector<T>(s.k * s.n, 2), c = random_vector<T>(s.m * s.n, 3),
       bias = random_vector<T>(s.n, 4);
  std::vector<double> truth(c.size());
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < s.k; ++l)
        sum += static_cast<double>(a[static_cast<std::size_t>(s.trans_a ? l * s.m + i : i * s.k + l)]) *
               static_cast<double>(b[static_cast<std::size_t>(s.trans_b ? j * s.k + l : l * s.n + j)]);
      const auto at = static_cast<std::size_t>(i * s.n + j);
      truth[at] = s.alpha * sum + s.beta * static_cast<double>(c[at]) +
                  (s.with_bias ? static_cast<double>(bias[static_cast<std::size_t>(j)]) : 0);
    }
  if (s.beta == 0) c.assign(c.size(), std::numeric_limits<T>::quiet_NaN());  // must not be read
  gemm({.a = view(a, s.trans_a ? Shape{s.k, s.m} : Shape{s.m, s.k}),
        .b = view(b, s.trans_b ? Shape{s.n, s.k} : Shape{s.k, s.n}),
        .c = view(c, {s.m, s.n}),
        .trans_a = s.trans_a,
        .trans_b = s.trans_b,
        .alpha = s.alpha,
        .beta = s.beta,
        .bias = s.with_bias ? view(bias) : TensorView{}},
       host_stream);
  return relative_error(c, truth);
}

TEST(Gemm, MatchesThreeLoops) {
  const std::int64_t shapes[][3] = {{1, 1, 1}, {1, 65, 7}, {33, 1, 5}, {3, 5, 200}, {70, 90, 33}, {129, 90, 60}};
  for (const int num : {1, 2, 3}) {
    const Setting setting(num);
    for (const auto& [m, n, k] : shapes)
      for (int mask = 0; mask < 16; ++mask) {
        const Case s{m,
                     n,
                     k,
                     (mask & 1) != 0,
                     (mask & 2) != 0,
                     mask & 4 ? -0.5 : 1.0,
                     mask & 4   ? 2.0
                     : mask & 1 ? 1.0
                                : 0.0,
                     (mask & 8) != 0};
        EXPECT_LT(error_of<float>(s), 1e-5) << m << " " << n << " " << k << " mask " << mask << " threads " << num;
        EXPECT_LT(error_of<double>(s), 1e-13) << m << " " << n << " " << k << " mask " << mask << " threads " << num;
      }
  }
}

/// A GEMM in parts and the separate GEMMs that it stands for, bytes of C; with addend, bias, and pitches.
template <class T>
void parts_have_the_bits_of_separate_gemms(bool trans_a, bool trans_b, GemmParts::Of of) {
  const std::int64_t sizes[] = {40, 8, 24};
  const std::int64_t m = of == GemmParts::Of::m ? 72 : 29, n = of == GemmParts::Of::n ? 72 : 35,
                     k = of == GemmParts::Of::k ? 72 : 51, gap = 5;
  const std::int64_t wide_a = (trans_a ? m : k) + gap, wide_b = (trans_b ? k : n) + gap, wide_c = n + gap;
  auto a = random_vector<T>((trans_a ? k : m) * wide_a, 1), b = random_vector<T>((trans_b ? n : k) * wide_b, 2),
       c = random_vector<T>(m * wide_c, 3), addend = random_vector<T>(m * wide_c, 4), bias = random_vector<T>(n, 5);
  auto separate = c;
  const auto matrix = [](std::vector<T>& v, std::int64_t at, std::int64_t height, std::int64_t width) {
    return TensorView(v.data() + at, Shape{height, width});
  };
  const auto args = [&](std::vector<T>& to) {
    return GemmArgs{.a = matrix(a, 0, trans_a ? k : m, trans_a ? m : k),
                    .b = matrix(b, 0, trans_b ? n : k, trans_b ? k : n),
                    .c = matrix(to, 0, m, n),
                    .trans_a = trans_a,
                    .trans_b = trans_b,
                    .beta = 1,
                    .addend = matrix(addend, 0, m, n),
                    .bias = view(bias),
                    .stride_a = wide_a,
                    .stride_b = wide_b,
                    .stride_c = wide_c};
  };
  GemmArgs all = args(c);
  all.parts = {.of = of, .count = 3, .sizes = {sizes[0], sizes[1], sizes[2]}};
  gemm(all, host_stream);
  std::int64_t at = 0;
  for (const std::int64_t size : sizes) {
    GemmArgs part = args(separate);
    const auto cut = [&](std::vector<T>& v, bool columns, std::int64_t wide, std::int64_t height, std::int64_t width) {
      return columns ? matrix(v, at, height, size) : matrix(v, at * wide, size, width);
    };
    if (of != GemmParts::Of::n)
      part.a = cut(a, trans_a == (of == GemmParts::Of::m), wide_a, part.a.shape[0], part.a.shape[1]);
    if (of != GemmParts::Of::m)
      part.b = cut(b, trans_b == (of == GemmParts::Of::k), wide_b, part.b.shape[0], part.b.shape[1]);
    if (of != GemmParts::Of::k) {
      part.c = cut(separate, of == GemmParts::Of::n, wide_c, m, n);
      part.addend = cut(addend, of == GemmParts::Of::n, wide_c, m, n);
    }
    if (of == GemmParts::Of::n) part.bias = {bias.data() + at, Shape{size}};
    if (of == GemmParts::Of::k && at > 0) part.addend = {}, part.bias = {};
    gemm(part, host_stream);
    at += size;
  }
  EXPECT_EQ(std::memcmp(c.data(), separate.data(), c.size() * sizeof(T)), 0)
      << trans_a << trans_b << static_cast<int>(of);
}

TEST(Gemm, InPartsHasTheBitsOfSeparateGemms) {
  for (const int num : {1, 2}) {
    const Setting setting(num);
    for (const auto of : {GemmParts::Of::m, GemmParts::Of::n, GemmParts::Of::k})
      for (int mask = 0; mask < 4; ++mask) {
        parts_have_the_bits_of_separate_gemms<float>((mask & 1) != 0, (mask & 2) != 0, of);
        parts_have_the_bits_of_separate_gemms<double>((mask & 1) != 0, (mask & 2) != 0, of);
      }
  }
  std::vector<float> x(16);
  EXPECT_THROW(gemm({.a = view(x, {4, 4}),
                     .b = view(x, {4, 4}),
                     .c = view(x, {4, 4}),
                     .parts = {.of = GemmParts::Of::n, .count = 2, .sizes = {1, 2}}},
                    host_stream),
               std::logic_error);
}

TEST(Gemm, AFewRowsByALargeMatrix) {
  for (const Isa isa : instruction_sets())
    for (const int num : {1, 2}) {
      const Setting setting(num, isa);
      for (const std::int64_t m : {1, 2, 3, 8, 9})
        for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{129, 131}, {523, 35}, {20, 1021}})
          for (int mask = 0; mask < 12; ++mask) {
            const double betas[] = {0, 1, -0.5};
            const Case s{m, n, k, false, (mask & 1) != 0, 1.0, betas[mask / 4], (mask & 2) != 0};
            EXPECT_LT(error_of<float>(s), 1e-5) << m << " " << n << " " << k << " mask " << mask << " threads " << num;
            EXPECT_LT(error_of<double>(s), 1e-13)
                << m << " " << n << " " << k << " mask " << mask << " threads " << num;
          }
    }
}

TEST(Gemm, ARowOfASkinnyGemmDoesNotDependOnItsNeighbors) {
  const std::int64_t n = 700, k = 300;
  auto a = random_vector<float>(8 * k, 1), b = random_vector<float>(k * n, 2);
  for (const bool trans_b : {false, true}) {
    std::vector<float> one;
    for (const int num : {1, 2, 3})
      for (const std::int64_t m : {1, 2, 5, 8}) {
        const Setting setting(num);
        std::vector<float> c(static_cast<std::size_t>(m * n));
        gemm({.a = {a.data(), {m, k}},
              .b = view(b, trans_b ? Shape{n, k} : Shape{k, n}),
              .c = view(c, {m, n}),
              .trans_b = trans_b},
             host_stream);
        c.resize(static_cast<std::size_t>(n));
        if (one.empty()) one = c;
        EXPECT_EQ(c, one) << m << " rows, " << num << " threads";
      }
  }
}

TEST(Gemm, EmptyDimensions) {
  std::vector<float> a(12), b(12), c(9, 3.0F), bias{1, 2, 3};
  a.reserve(1), b.reserve(1);
  gemm({.a = {a.data(), {3, 0}}, .b = {b.data(), {0, 3}}, .c = view(c, {3, 3}), .bias = view(bias)},
       host_stream);  // k 0: the bias alone
  EXPECT_EQ(c, (std::vector<float>{1, 2, 3, 1, 2, 3, 1, 2, 3}));
  gemm({.a = {a.data(), {0, 4}}, .b = {b.data(), {4, 3}}, .c = {c.data(), {0, 3}}}, host_stream);
  EXPECT_EQ(c[0], 1.0F);
}

TEST(Gemm, EqualCallsGiveEqualBits) {
  auto a = random_vector<float>(200 * 150, 1), b = random_vector<float>(150 * 170, 2);
  for (const int num : {1, 2, 3}) {
    const Setting setting(num);
    std::vector<float> first;
    for (int repeat = 0; repeat < 4; ++repeat) {
      std::vector<float> c(200 * 170);
      gemm({.a = view(a, {200, 150}), .b = view(b, {150, 170}), .c = view(c, {200, 170})}, host_stream);
      if (repeat == 0) first = c;
      EXPECT_EQ(c, first);
    }
  }
}

/// y = addend + a·b + bias into other memory has the bits of the in-place result.
template <class T>
void expect_addend_as_old_c(std::int64_t m, std::int64_t n, std::int64_t k, bool with_bias) {
  const std::int64_t pitch = n + 5;
  auto a = random_vector<T>(m * k, 1), b = random_vector<T>(n * k, 2), old = random_vector<T>(m * pitch, 3),
       bias = random_vector<T>(n, 4);
  auto over = old, separate = std::vector<T>(old.size(), T(7.0F));
  const auto before = old;
  GemmArgs args{.a = view(a, {m, k}),
                .b = view(b, {n, k}),
                .c = {over.data(), {m, n}},
                .trans_b = true,
                .beta = 1,
                .bias = with_bias ? view(bias) : TensorView{},
                .stride_c = pitch};
  gemm(args, host_stream);
  args.c = {separate.data(), {m, n}};
  args.addend = {old.data(), {m, n}};
  gemm(args, host_stream);
  EXPECT_EQ(std::memcmp(old.data(), before.data(), old.size() * sizeof(T)), 0);
  for (std::int64_t row = 0; row < m; ++row) {
    const auto at = static_cast<std::size_t>(row * pitch), width = static_cast<std::size_t>(n);
    EXPECT_EQ(std::memcmp(&separate[at], &over[at], width * sizeof(T)), 0)
        << m << " " << n << " " << k << " row " << row;
    EXPECT_EQ(static_cast<float>(separate[at + width]), 7.0F);
  }
  args.addend = args.c;
  EXPECT_THROW(gemm(args, host_stream), std::logic_error);
  args.addend = {old.data(), {m, n}};
  args.beta = 0;
  EXPECT_THROW(gemm(args, host_stream), std::logic_error);
}

TEST(Gemm, AnAddendIsTheOldCElsewhere) {
  const Setting setting(2);
  const std::int64_t shapes[][3] = {{1, 65, 7}, {3, 300, 200}, {70, 90, 33}};  // skinny ones among them
  for (const auto& [m, n, k] : shapes)
    for (const bool with_bias : {false, true}) {
      expect_addend_as_old_c<float>(m, n, k, with_bias);
      expect_addend_as_old_c<double>(m, n, k, with_bias);
      expect_addend_as_old_c<bf16>(m, n, k, with_bias);
    }
}

TEST(Gemm, ShapesAndTypesAreChecked) {
  std::vector<float> a(6), b(6), c(4);
  std::vector<double> wide(4);
  const TensorView va{a.data(), {2, 3}}, vb{b.data(), {3, 2}};
  EXPECT_NO_THROW(gemm({.a = va, .b = vb, .c = {c.data(), {2, 2}}}, host_stream));
  EXPECT_THROW(gemm({.a = va, .b = va, .c = {c.data(), {2, 2}}}, host_stream), std::logic_error);
  EXPECT_THROW(gemm({.a = va, .b = vb, .c = {c.data(), {4, 1}}}, host_stream), std::logic_error);
  EXPECT_THROW(gemm({.a = va, .b = vb, .c = {wide.data(), {2, 2}}}, host_stream), std::logic_error);
  EXPECT_THROW(gemm({.a = va, .b = vb, .c = {c.data(), {2, 2}}, .bias = {a.data(), {3}}}, host_stream),
               std::logic_error);
}

TEST(Gemm, SaysWhatItIs) {
  EXPECT_FALSE(blas_version().empty());
  EXPECT_GT(measure_gemm({.m = 64, .n = 64, .k = 64, .trans_b = true}, 3), 0.01);
}

}  // namespace
}  // namespace tessera::kernels
