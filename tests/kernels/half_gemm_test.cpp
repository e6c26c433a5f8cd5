// SPDX-License-Identifier: Apache-2.0
// GEMM of bf16 and f16. On small integers every sum is exact in fp32, so that results are held to the bit: exact value,
// one rounding. Up-cast panels, and oneDNN's primitives where this CPU has instructions for them; shapes beyond one
// block, thin products, NaN.
#include "kernels/gemm.hpp"

#include <array>
#include <thread>

#include "kernels/host/onednn.hpp"
#include "reference_16bit.hpp"

namespace tessera::kernels {
namespace {

TYPED_TEST_SUITE(SixteenBit, SixteenBitTypes);

/// How a GEMM is computed: up-cast; with what oneDNN prepares for a shape, or for every shape. The last two are up-cast
/// too where oneDNN is not used.
struct Way {
  host::HalfGemm kind;
  bool rows_vary;
};
constexpr std::array<Way, 3> ways{
    {{host::HalfGemm::upcast, false}, {host::HalfGemm::automatic, false}, {host::HalfGemm::automatic, true}}};

/// One of them, for a scope.
class Chosen {
 public:
  explicit Chosen(const Way& way) : rows_vary(way.rows_vary) { host::set_half_gemm(way.kind); }
  ~Chosen() { host::set_half_gemm(host::HalfGemm::automatic); }
  Chosen(const Chosen&) = delete;
  Chosen& operator=(const Chosen&) = delete;

  const bool rows_vary;
};

struct Case {
  std::int64_t m, n, k;
  bool trans_a, trans_b;
  double alpha = 1, beta = 0;
  bool with_bias = false;
};

/// Whole numbers in [-3, 3], a function of (seed, index).
template <class T>
std::vector<T> integers(std::int64_t n, std::uint64_t seed) {
  std::vector<T> v(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < v.size(); ++i)
    v[i] = T(static_cast<float>(static_cast<int>((i * 2654435761U + seed * 40503U) >> 7) % 4));
  for (std::size_t i = 0; i < v.size(); i += 3) v[i] = T(-static_cast<float>(v[i]));
  return v;
}

/// The product in fp32, which is exact here; by loops over lines, fast enough for shapes beyond a block.
template <class T>
std::vector<float> truth(const Case& s, const std::vector<T>& a, const std::vector<T>& b, const std::vector<float>& c,
                         const std::vector<T>& bias) {
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  const auto wide_a = widened(a);
  auto wide_b = widened(b);
  if (s.trans_b)
    for (std::int64_t l = 0; l < s.k; ++l)
      for (std::int64_t j = 0; j < s.n; ++j) wide_b[at(l * s.n + j)] = b[at(j * s.k + l)];
  std::vector<float> result(at(s.m * s.n)), line(at(s.n));
  for (std::int64_t i = 0; i < s.m; ++i) {
    std::fill(line.begin(), line.end(), 0.0F);
    for (std::int64_t l = 0; l < s.k; ++l) {
      const float x = wide_a[at(s.trans_a ? l * s.m + i : i * s.k + l)];
      const float* y = wide_b.data() + l * s.n;
      for (std::int64_t j = 0; j < s.n; ++j) line[at(j)] += x * y[j];
    }
    for (std::int64_t j = 0; j < s.n; ++j)
      result[at(i * s.n + j)] = static_cast<float>(s.alpha) * line[at(j)] +
                                (s.beta == 0 ? 0 : static_cast<float>(s.beta) * c[at(i * s.n + j)]) +
                                (s.with_bias ? static_cast<float>(bias[at(j)]) : 0);
  }
  return result;
}

template <class T>
void is_exact(const Case& s, bool rows_vary = false) {
  SCOPED_TRACE(strfmt("%lld %lld %lld, transposed %d %d, alpha %g, beta %g, bias %d", static_cast<long long>(s.m),
                      static_cast<long long>(s.n), static_cast<long long>(s.k), s.trans_a, s.trans_b, s.alpha, s.beta,
                      s.with_bias));
  auto a = integers<T>(s.m * s.k, 1), b = integers<T>(s.k * s.n, 2), c = integers<T>(s.m * s.n, 3),
       bias = integers<T>(s.n, 4);
  auto wide = widened(c);
  const std::vector<float> exact = truth(s, a, b, wide, bias);
  if (s.beta == 0) {  // must not be read
    c.assign(c.size(), T(NAN));
    wide.assign(wide.size(), NAN);
  }
  GemmArgs args{.a = view(a, s.trans_a ? Shape{s.k, s.m} : Shape{s.m, s.k}),
                .b = view(b, s.trans_b ? Shape{s.n, s.k} : Shape{s.k, s.n}),
                .c = view(c, {s.m, s.n}),
                .trans_a = s.trans_a,
                .trans_b = s.trans_b,
                .alpha = s.alpha,
                .beta = s.beta,
                .bias = s.with_bias ? view(bias) : TensorView{},
                .rows_vary = rows_vary};
  gemm(args, host_stream);
  for (std::size_t i = 0; i < c.size(); ++i)
    ASSERT_EQ(static_cast<float>(c[i]), static_cast<float>(T(exact[i]))) << i;  // -0 is 0
  args.c = view(wide, {s.m, s.n});                                              // fp32 beside halves: not rounded
  gemm(args, host_stream);
  EXPECT_EQ(wide, exact);
}

template <class T>
void all_kinds(std::int64_t m, std::int64_t n, std::int64_t k, bool rows_vary = false) {
  for (int mask = 0; mask < 16; ++mask)
    is_exact<T>({m, n, k, (mask & 1) != 0, (mask & 2) != 0, mask & 4 ? -0.5 : 1.0,
                 mask & 4   ? 2.0
                 : mask & 1 ? 1.0
                            : 0.0,
                 (mask & 8) != 0},
                rows_vary);
}

TYPED_TEST(SixteenBit, EveryInstructionSetSumsAndRoundsAlike) {
  const Chosen chosen(ways[0]);
  for (const Isa isa : instruction_sets()) {
    const Setting setting(1, isa);
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{33, 1, 5}, {7, 17, 9}, {75, 67, 33}, {24, 64, 40}})
      all_kinds<TypeParam>(m, n, k);
  }
}

TYPED_TEST(SixteenBit, ExactSumsAreRoundedOnce) {
  for (const Way& way : ways)
    for (const int num : {1, 3}) {
      const Chosen chosen(way);
      const Setting setting(num);
      for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                                    {33, 1, 5},
                                    {3, 5, 200},
                                    {13, 33, 7},
                                    {70, 90, 33},
                                    {129, 90, 60},
                                    {5, 9, 0}})
        all_kinds<TypeParam>(m, n, k, chosen.rows_vary);
    }
}

TYPED_TEST(SixteenBit, BeyondOneBlock) {
  for (const Isa isa : instruction_sets()) {
    const Chosen chosen(ways[0]);
    const Setting setting(1, isa);
    is_exact<TypeParam>({1030, 60, 390, false, true, 1, 1, true});
    is_exact<TypeParam>({60, 1550, 770, false, false, 0.5});
    is_exact<TypeParam>({1027, 40, 790, true, false, 1, -1});
  }
  for (const Way& way : ways) {
    const Chosen chosen(way);
    is_exact<TypeParam>({485, 70, 515, false, false, 1, 1, true}, chosen.rows_vary);
    is_exact<TypeParam>({30, 1050, 1029, true, true, 2, 0, false}, chosen.rows_vary);
  }
}

TYPED_TEST(SixteenBit, AFewRowsByALargeMatrix) {
  for (const Isa isa : instruction_sets())
    for (const int num : {1, 2}) {
      const Setting setting(num, isa);
      for (const std::int64_t m : {1, 8})
        for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{129, 131}, {20, 1021}, {1100, 17}})
          for (const bool trans_b : {false, true}) {
            is_exact<TypeParam>({m, n, k, false, trans_b, 1, 0, true});
            is_exact<TypeParam>({m, n, k, false, trans_b, 1, -0.5, false});
          }
    }
}

TYPED_TEST(SixteenBit, GemmOfAnyNumbersIsNearItsFp32) {
  for (const Way& way : ways) {
    const Chosen chosen(way);
    const std::int64_t m = 61, n = 75, k = 333;
    auto a = random_16bit<TypeParam>(m * k, 1), b = random_16bit<TypeParam>(k * n, 2);
    auto wa = widened(a), wb = widened(b);
    std::vector<TypeParam> c(static_cast<std::size_t>(m * n));
    std::vector<float> wc(c.size());
    gemm({.a = view(a, {m, k}), .b = view(b, {k, n}), .c = view(c, {m, n}), .rows_vary = way.rows_vary}, host_stream);
    gemm({.a = view(wa, {m, k}), .b = view(wb, {k, n}), .c = view(wc, {m, n})}, host_stream);
    expect_near_rounded(c, wc, 2e-6);  // some k·2^-24 of Σ|a·b|
  }
}

TYPED_TEST(SixteenBit, GemmOfNaNAndInfinity) {
  for (const Way& way : ways) {
    const Chosen chosen(way);
    const std::int64_t m = 14, n = 35, k = 9;  // edges of every tile
    std::vector<TypeParam> a(static_cast<std::size_t>(m * k), TypeParam(1.0F)),
        b(static_cast<std::size_t>(k * n), TypeParam(1.0F)), c(static_cast<std::size_t>(m * n));
    a[static_cast<std::size_t>(3 * k + 8)] = TypeParam(NAN);
    a[static_cast<std::size_t>(13 * k + 8)] = TypeParam(-INFINITY);
    gemm({.a = view(a, {m, k}), .b = view(b, {k, n}), .c = view(c, {m, n}), .rows_vary = way.rows_vary}, host_stream);
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        const float x = c[static_cast<std::size_t>(i * n + j)];
        if (i == 3) ASSERT_TRUE(std::isnan(x));
        // oneDNN makes an odd k even, and multiplies the last element of A by 0 (AVX512-BF16).
        else if (i == 13 && way.kind != host::HalfGemm::upcast) ASSERT_FALSE(std::isfinite(x)) << j;
        else ASSERT_EQ(x, i == 13 ? -INFINITY : 9.0F) << i << " " << j;
      }
  }
}

TYPED_TEST(SixteenBit, ColumnsOfWiderMatrices) {
  const std::int64_t m = 20, n = 23, k = 17, wide = 50;
  auto a = integers<TypeParam>(m * wide, 1), b = integers<TypeParam>(n * wide, 2), c = integers<TypeParam>(m * wide, 3);
  for (std::int64_t i = 0; i < wide * n; ++i) {  // NaN beside the columns, which must not be read
    if (i < m * wide && (i % wide < 3 || i % wide >= 3 + k)) a[static_cast<std::size_t>(i)] = TypeParam(NAN);
    if (i % wide < 5 || i % wide >= 5 + k) b[static_cast<std::size_t>(i)] = TypeParam(NAN);
  }
  for (const Way& way : ways) {
    const Chosen chosen(way);
    auto out = c;
    gemm({.a = {a.data() + 3, {m, k}},
          .b = {b.data() + 5, {n, k}},
          .c = {out.data() + 7, {m, n}},
          .trans_b = true,
          .stride_a = wide,
          .stride_b = wide,
          .stride_c = wide,
          .rows_vary = way.rows_vary},
         host_stream);
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < wide; ++j) {
        const auto at = static_cast<std::size_t>(i * wide + j);
        float sum = c[at];
        if (j >= 7 && j < 7 + n) {
          sum = 0;
          for (std::int64_t l = 0; l < k; ++l)
            sum += static_cast<float>(a[static_cast<std::size_t>(i * wide + 3 + l)]) *
                   static_cast<float>(b[static_cast<std::size_t>((j - 7) * wide + 5 + l)]);
        }
        ASSERT_EQ(out[at].bits, TypeParam(sum).bits) << i << " " << j;
      }
  }
}

TYPED_TEST(SixteenBit, TypesOfGemmAreChecked) {
  auto a = integers<TypeParam>(4, 1);
  std::vector<float> wide(4);
  std::vector<double> wider(4);
  const TensorView half{a.data(), {2, 2}}, f32{wide.data(), {2, 2}}, f64{wider.data(), {2, 2}};
  EXPECT_NO_THROW(gemm({.a = half, .b = half, .c = f32}, host_stream));
  EXPECT_THROW(gemm({.a = half, .b = f32, .c = f32}, host_stream), std::logic_error);
  EXPECT_THROW(gemm({.a = f32, .b = f32, .c = half}, host_stream), std::logic_error);
  EXPECT_THROW(gemm({.a = half, .b = half, .c = f64}, host_stream), std::logic_error);
  EXPECT_THROW(gemm({.a = half, .b = half, .c = half, .bias = {wide.data(), {2}}}, host_stream), std::logic_error);
}

/// Equal calls give equal bits: another thread's primitives, other addresses, after other shapes.
TEST(HalfGemm, BitsDependOnTheCallAlone) {
  const std::int64_t m = 96, n = 200, k = 777;
  auto a = random_16bit<bf16>(m * k, 1), b = random_16bit<bf16>(k * n, 2);
  const auto product = [&](std::size_t shift, bool trans_a, bool rows_vary) {
    std::vector<bf16> at_a(a.size() + 64), at_b(b.size() + 64);
    std::copy(a.begin(), a.end(), at_a.begin() + static_cast<std::ptrdiff_t>(shift));
    std::copy(b.begin(), b.end(), at_b.begin() + static_cast<std::ptrdiff_t>(2 * shift));
    std::vector<float> c(static_cast<std::size_t>(m * n) + 64);
    gemm({.a = {at_a.data() + shift, trans_a ? Shape{k, m} : Shape{m, k}},
          .b = {at_b.data() + 2 * shift, {k, n}},
          .c = {c.data() + shift, {m, n}},
          .trans_a = trans_a,
          .rows_vary = rows_vary},
         host_stream);
    return std::vector<float>(c.begin() + static_cast<std::ptrdiff_t>(shift),
                              c.begin() + static_cast<std::ptrdiff_t>(shift) + m * n);
  };
  for (const bool trans_a : {false, true})
    for (const bool rows_vary : {false, true}) {
      const std::vector<float> first = product(0, trans_a, rows_vary);
      for (const std::size_t shift : {1, 3, 8, 17}) EXPECT_EQ(product(shift, trans_a, rows_vary), first) << shift;
      std::vector<float> elsewhere;
      std::thread([&] { elsewhere = product(0, trans_a, rows_vary); }).join();
      EXPECT_EQ(elsewhere, first);
    }
}

/// More shapes than a thread keeps primitives for.
TEST(HalfGemm, ManyShapes) {
  for (int pass = 0; pass < 2; ++pass)
    for (std::int64_t m = 9; m < 9 + 270; ++m) is_exact<bf16>({m, 3, 5, false, false});
}

template <class T>
host::HalfProduct<T, T> small(std::vector<T>& memory, float alpha, const T* bias) {
  return {.shape = {.m = 16, .n = 16, .k = 16, .lda = 16, .ldb = 16, .ldc = 16},
          .a = memory.data(),
          .b = memory.data(),
          .bias = bias,
          .c = memory.data() + 256,
          .alpha = alpha,
          .beta = 0};
}

/// Where oneDNN is used, it is used for all that a model multiplies.
TYPED_TEST(SixteenBit, OneDnnTakesWhatItCan) {
  auto memory = integers<TypeParam>(512, 1);
  alignas(64) std::array<std::byte, 1 << 16> scratch;
  const bool used = host::onednn<TypeParam>().missing.empty();
  EXPECT_EQ(used, !host::onednn<TypeParam>().name.empty());
  EXPECT_EQ(host::onednn_gemm(small<TypeParam>(memory, 1, memory.data()), scratch.data(), scratch.size()), used);
  EXPECT_EQ(host::onednn_gemm(small<TypeParam>(memory, 2, nullptr), scratch.data(), scratch.size()), used);
  EXPECT_FALSE(host::onednn_gemm(small<TypeParam>(memory, 2, memory.data()), scratch.data(), scratch.size()));
  for (const Isa isa : instruction_sets())
    if (isa != Isa::avx512_bf16) {
      const Setting setting(1, isa);
      EXPECT_FALSE(host::onednn<TypeParam>().missing.empty());
    }
}

TEST(HalfGemm, SaysWhatItIs) {
  const Gemm16Bit here = gemm_16bit(DType::bf16);
  EXPECT_EQ(here.skipped.empty(), here.name.starts_with("oneDNN ")) << here.name;
  EXPECT_EQ(here.skipped.empty(), here.name != "up-cast") << here.skipped;
  EXPECT_GT(measure_gemm({.m = 64, .n = 64, .k = 64, .dtype = DType::bf16, .trans_a = true, .fp32_result = true}, 3),
            0.001);
}

}  // namespace
}  // namespace tessera::kernels
