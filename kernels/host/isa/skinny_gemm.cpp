// SPDX-License-Identifier: Apache-2.0
// GEMM of a few rows. Transposed: dot products along rows of B. Plain: rows of B scaled and added into a block of C
// that fits in L1. One row of A reads B from beginning to end: a processor prefetches one run far better than several.
// Several rows of A take several rows of B at a time, and prefetch the next ones. One row of A and parts of rows of a
// plain B (of a thread, or of a block) prefetch too, because a processor stops at the end of a part; where B is read as
// one run, prefetching makes it slower.
// Numbers of B are widened once for several rows of A. The order of the sums of an element does not depend on m or on
// the split of columns.

#include "kernels/host/skinny_gemm.hpp"

#include "kernels/host/isa/horizontal_sum.hpp"
#include "kernels/host/isa/math.hpp"
#include "kernels/host/isa/vec.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

constexpr std::int64_t depth = 8;  // plain, several rows of A: rows of B together

/// Rows of A and of B whose products are summed together; one more of B costs registers, one less of A another pass
/// over B.
struct Rows {
  int a, b;
};
constexpr Rows one_row{1, 1}, four_rows{4, 2};
static_assert(vec_width<double> % 2 == 0);

/// How far ahead of one row of A parts of rows of a plain B are prefetched, at least: bytes of those parts.
constexpr std::int64_t prefetch_distance = 8192;

/// sums[r·w + j], j below of.b: the products of row r of A and row j of B, for k in [0, whole), two registers at a
/// time.
template <Rows of, class T>
inline void dots(const T* a, std::int64_t lda, const T* b, std::int64_t ldb, std::int64_t whole, Vec<T>* sums) {
  constexpr int w = vec_width<T>;
  Vec<T> low[of.a * of.b], high[of.a * of.b];
#pragma GCC unroll 8
  for (int i = 0; i < of.a * of.b; ++i) low[i] = high[i] = Vec<T>{};
  for (std::int64_t i = 0; i < whole; i += 2 * w) {
    Vec<T> x[of.b], y[of.b];
#pragma GCC unroll 4
    for (int j = 0; j < of.b; ++j) {
      if constexpr (of.b > 1) __builtin_prefetch(b + (of.b + j) * ldb + i);
      x[j] = load<T>(b + j * ldb + i), y[j] = load<T>(b + j * ldb + i + w);
    }
#pragma GCC unroll 4
    for (int r = 0; r < of.a; ++r) {
      const Vec<T> p = load<T>(a + r * lda + i), q = load<T>(a + r * lda + i + w);
#pragma GCC unroll 4
      for (int j = 0; j < of.b; ++j) {
        low[r * of.b + j] = multiply_add<T>(p, x[j], low[r * of.b + j]);
        high[r * of.b + j] = multiply_add<T>(q, y[j], high[r * of.b + j]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < of.a; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < of.b; ++j) sums[r * w + j] = low[r * of.b + j] + high[r * of.b + j];
}

/// C += products for of.a rows of A and w rows of B; the sums of the lanes in the lanes' order.
template <Rows of, class T>
inline void square(const T* a, const T* b, const SkinnyGemmArgs<T>& p, Acc<T>* c) {
  constexpr int w = vec_width<T>, b_rows = of.b < w ? of.b : w;
  constexpr Rows step{of.a, b_rows};
  const std::int64_t whole = p.k / (2 * w) * (2 * w);
  Vec<T> sums[of.a * w];
  for (int j = 0; j < w; j += b_rows) dots<step, T>(a, p.lda, b + j * p.ldb, p.ldb, whole, sums + j);
  for (int r = 0; r < of.a; ++r) {
    Vec<T> lanes[w];
    for (int j = 0; j < w; ++j) lanes[j] = sums[r * w + j];
    transpose<Acc<T>>(lanes);
    Vec<T> sum = lanes[0];
#pragma GCC unroll 16
    for (int l = 1; l < w; ++l) sum += lanes[l];
    for (std::int64_t i = whole; i < p.k; ++i) {
      Vec<T> x{};
      for (int j = 0; j < w; ++j) x[j] = widen(b[j * p.ldb + i]);
      sum = madd(all<Vec<T>>(widen(a[r * p.lda + i])), x, sum);
    }
    Acc<T>* const to = c + r * p.ldc;
    store<Acc<T>>(to, load<Acc<T>>(to) + sum);
  }
}

/// c += a·b for one row of each.
template <class T>
inline void dot(const T* a, const T* b, std::int64_t k, Acc<T>& c) {
  constexpr std::int64_t w = vec_width<T>;
  Vec<T> low{}, high{};
  std::int64_t i = 0;
  for (; i + 2 * w <= k; i += 2 * w) {
    low = multiply_add<T>(load<T>(a + i), load<T>(b + i), low);
    high = multiply_add<T>(load<T>(a + i + w), load<T>(b + i + w), high);
  }
  Acc<T> sum = sum_of<T>(low + high);
  for (; i < k; ++i) sum = madd(widen(a[i]), widen(b[i]), sum);
  c += sum;
}

template <class T>
void transposed(const SkinnyGemmArgs<T>& p) {
  constexpr std::int64_t w = vec_width<T>;
  std::int64_t j = p.first;
  for (; j + w <= p.last; j += w) {
    const T* const b = p.b + j * p.ldb;
    std::int64_t r = 0;
    for (; r + four_rows.a <= p.m; r += four_rows.a) square<four_rows, T>(p.a + r * p.lda, b, p, p.c + r * p.ldc + j);
    for (; r < p.m; ++r) square<one_row, T>(p.a + r * p.lda, b, p, p.c + r * p.ldc + j);
  }
  for (; j < p.last; ++j)
    for (std::int64_t r = 0; r < p.m; ++r) dot(p.a + r * p.lda, p.b + j * p.ldb, p.k, p.c[r * p.ldc + j]);
}

/// c += a·b for a part of a row of B; prefetches that of another row, `next`, if it is not null.
template <class T>
inline void add_row(Acc<T> a, const T* b, const T* next, std::int64_t n, Acc<T>* c) {
  constexpr std::int64_t w = vec_width<T>, several = 4 * w;
  const Vec<T> factor = all<Vec<T>>(a);
  const auto add = [=](std::int64_t j, const auto& part) {
    part.store(c + j, madd(factor, part.load(b + j), part.load(c + j)));
  };
  std::int64_t first = 0;
  for (; first + several <= n; first += several) {
#pragma GCC unroll 4
    for (std::int64_t j = first; j < first + several; j += w) {
      if (j % line_numbers<T> == 0 && next) prefetch_to_l2(next + j);
      add(j, WholeRegister<>{});
    }
  }
  for_each_register<T>(n - first, [=](std::int64_t j, const auto& part) { add(first + j, part); });
}

/// c[r·ldc + j] += Σ over N rows of B of a[r·N + i]·b[i·ldb + j], for j in [0, n) and m rows.
template <class T, int N>
inline void add_rows(const Acc<T>* a, std::int64_t m, const T* b, std::int64_t ldb, std::int64_t n, Acc<T>* c,
                     std::int64_t ldc) {
  for_each_register<T>(n, [=](std::int64_t j, const auto& part) {
    Vec<T> x[N];
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      __builtin_prefetch(b + (N + i) * ldb + j);
      x[i] = part.load(b + i * ldb + j);
    }
    for (std::int64_t r = 0; r < m; ++r) {
      Vec<T> sum = part.load(c + r * ldc + j);
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) sum = madd(all<Vec<T>>(a[r * N + i]), x[i], sum);
      part.store(c + r * ldc + j, sum);
    }
  });
}

template <class T>
void plain(const SkinnyGemmArgs<T>& p) {
  const std::int64_t block = skinny_columns(p.m);
  for (std::int64_t j = p.first; j < p.last; j += block) {
    const std::int64_t n = p.last - j < block ? p.last - j : block;
    Acc<T>* const c = p.c + j;
    if (p.m == 1) {
      const std::int64_t ahead = prefetch_distance / (n * static_cast<std::int64_t>(sizeof(T))) + 1;
      for (std::int64_t i = 0; i < p.k; ++i) {
        const T* const row = p.b + i * p.ldb + j;
        add_row<T>(widen(p.a[i]), row, n < p.ldb && i + ahead < p.k ? row + ahead * p.ldb : nullptr, n, c);
      }
      continue;
    }
    for (std::int64_t i = 0; i < p.k; i += depth) {
      const T* const b = p.b + i * p.ldb + j;
      const std::int64_t rows = p.k - i < depth ? p.k - i : depth;
      Acc<T> a[max_skinny_rows * depth];
      if (rows == depth) {
        for (std::int64_t r = 0; r < p.m; ++r)
          for (std::int64_t one = 0; one < depth; ++one) a[r * depth + one] = widen(p.a[r * p.lda + i + one]);
        add_rows<T, depth>(a, p.m, b, p.ldb, n, c, p.ldc);
        continue;
      }
      for (std::int64_t one = 0; one < rows; ++one) {
        for (std::int64_t r = 0; r < p.m; ++r) a[r] = widen(p.a[r * p.lda + i + one]);
        add_rows<T, 1>(a, p.m, b + one * p.ldb, p.ldb, n, c, p.ldc);
      }
    }
  }
}

}  // namespace

TESSERA_TABLE_DEFINE(SkinnyGemm, skinny_gemm, plain<T>, transposed<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
