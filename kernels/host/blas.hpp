// SPDX-License-Identifier: Apache-2.0
#pragma once
// GEMM by CBLAS on the calling thread alone, on raw pointers: for kernels that tile above it. The public operation is
// kernels/gemm.hpp.

#include <cstdint>

namespace tessera::kernels::host {

struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  std::int64_t lda = 0, ldb = 0, ldc = 0;  // row strides in elements
  bool operator==(const GemmShape&) const = default;
};

/// C (m, n) = alpha·op(A)·op(B) + beta·C, row-major; beta 0 does not read C. T float or double. Thread-safe.
template <class T>
void gemm_serial(const GemmShape& shape, T alpha, const T* a, const T* b, T beta, T* c);

}  // namespace tessera::kernels::host
