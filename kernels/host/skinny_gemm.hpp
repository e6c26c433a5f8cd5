// SPDX-License-Identifier: Apache-2.0
#pragma once
// GEMM of a few rows with a large matrix, on one thread. Reading the matrix is all the time it takes: it is read once,
// in place, where BLAS would copy it first. For generation (one token per row at a time) and for experts that few
// tokens chose.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

/// Rows of A up to which this is faster: with more, BLAS' copy pays.
inline constexpr std::int64_t max_skinny_rows = 8;
/// Columns of C that are summed together for m rows: their sums stay in L1. The more, the longer the runs of B that are
/// read.
inline constexpr std::int64_t most_skinny_sums = 4096;
constexpr std::int64_t skinny_columns(std::int64_t m) { return most_skinny_sums / (m > 0 ? m : 1) / 64 * 64; }

/// C += A·B for columns [first, last) of C.
template <class T>
struct SkinnyGemmArgs {
  const T *a, *b;
  Acc<T>* c;
  std::int64_t m, k, lda, ldb, ldc, first, last;
};

template <class T>
struct SkinnyGemm {
  void (*plain)(const SkinnyGemmArgs<T>& p);       // B (k, n): element (i, j) is b[i·ldb + j]
  void (*transposed)(const SkinnyGemmArgs<T>& p);  // B (n, k): element (i, j) is b[j·ldb + i]
};
TESSERA_TABLE(SkinnyGemm, skinny_gemm)

}  // namespace tessera::kernels::host
