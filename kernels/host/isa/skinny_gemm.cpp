// SPDX-License-Identifier: Apache-2.0
// GEMM of a few rows. Transposed: dot products along rows of B, four rows at a time. Plain: rows of B scaled and added,
// eight at a time, into a block of C that fits in L1. The order of the sums of an element does not depend on m or on
// the split of columns.

#include "kernels/host/skinny_gemm.hpp"

#include "kernels/host/isa/horizontal_sum.hpp"
#include "kernels/host/isa/math.hpp"
#include "kernels/host/isa/vec.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

constexpr std::int64_t b_rows = 4;          // transposed: rows of B together
constexpr std::int64_t depth = 8;           // plain: rows of B together
constexpr std::int64_t column_block = 512;  // plain: columns of C together

/// c[j] += a·b[j] for N rows b[j] of B.
template <class T, int N>
inline void dots(const T* a, const T* b, std::int64_t ldb, std::int64_t k, Acc<T>* c) {
  constexpr std::int64_t w = vec_width<T>;
  Vec<T> low[N], high[N];
#pragma GCC unroll 4
  for (int j = 0; j < N; ++j) low[j] = high[j] = Vec<T>{};
  std::int64_t i = 0;
  for (; i + 2 * w <= k; i += 2 * w) {
    const Vec<T> x = load<T>(a + i), y = load<T>(a + i + w);
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) {
      low[j] = multiply_add<T>(x, load<T>(b + j * ldb + i), low[j]);
      high[j] = multiply_add<T>(y, load<T>(b + j * ldb + i + w), high[j]);
    }
  }
  for (int j = 0; j < N; ++j) {
    Acc<T> sum = sum_of<T>(low[j] + high[j]);
    for (std::int64_t rest = i; rest < k; ++rest) sum = madd(widen(a[rest]), widen(b[j * ldb + rest]), sum);
    c[j] += sum;
  }
}

template <class T>
void transposed(const SkinnyGemmArgs<T>& p) {
  for (std::int64_t j = p.first; j < p.last; j += b_rows) {
    const T* const b = p.b + j * p.ldb;
    for (std::int64_t r = 0; r < p.m; ++r) {  // the rows of B are in L1 after the first
      const T* const a = p.a + r * p.lda;
      Acc<T>* const c = p.c + r * p.ldc + j;
      if (j + b_rows <= p.last) dots<T, b_rows>(a, b, p.ldb, p.k, c);
      else
        for (std::int64_t one = 0; one < p.last - j; ++one) dots<T, 1>(a, b + one * p.ldb, p.ldb, p.k, c + one);
    }
  }
}

/// c[0, n) += Σ over `count` rows of B of a[i]·b[i][0, n).
template <class T, int N>
inline void add_rows(const T* a, const T* b, std::int64_t ldb, std::int64_t n, Acc<T>* c) {
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) {
    Acc<T> sum = c[j];
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) sum = madd(widen(a[i]), widen(b[i * ldb + j]), sum);
    c[j] = sum;
  }
}

template <class T>
void plain(const SkinnyGemmArgs<T>& p) {
  for (std::int64_t j = p.first; j < p.last; j += column_block) {
    const std::int64_t n = p.last - j < column_block ? p.last - j : column_block;
    for (std::int64_t i = 0; i < p.k; i += depth) {
      const T* const b = p.b + i * p.ldb + j;
      for (std::int64_t r = 0; r < p.m; ++r) {
        const T* const a = p.a + r * p.lda + i;
        Acc<T>* const c = p.c + r * p.ldc + j;
        if (i + depth <= p.k) add_rows<T, depth>(a, b, p.ldb, n, c);
        else
          for (std::int64_t one = 0; one < p.k - i; ++one) add_rows<T, 1>(a + one, b + one * p.ldb, p.ldb, n, c);
      }
    }
  }
}

}  // namespace

TESSERA_TABLE_DEFINE(SkinnyGemm, skinny_gemm, plain<T>, transposed<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
