// SPDX-License-Identifier: Apache-2.0
// Column sums and element-wise addition.
#include "kernels/host/bias.hpp"

#include <cstddef>

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

template <class T>
void column_sums(const T* x, std::int64_t rows, std::int64_t stride, std::int64_t columns, Acc<T>* out, bool from_out) {
  if (!from_out)
    for (std::int64_t c = 0; c < columns; ++c) out[c] = 0;
  std::int64_t row = 0;
  for (; row + 8 <= rows; row += 8) {  // eight rows for one load and store of the sums, still added in order
    const T* p = x + row * stride;
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) {
      Acc<T> sum = out[c];
      sum += widen(p[c]);
      sum += widen(p[c + stride]);
      sum += widen(p[c + 2 * stride]);
      sum += widen(p[c + 3 * stride]);
      sum += widen(p[c + 4 * stride]);
      sum += widen(p[c + 5 * stride]);
      sum += widen(p[c + 6 * stride]);
      sum += widen(p[c + 7 * stride]);
      out[c] = sum;
    }
  }
  for (; row < rows; ++row) {
    const T* p = x + row * stride;
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) out[c] += widen(p[c]);
  }
}

template <class T>
void add(const T* x, T* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) put(y[i], widen(y[i]) + widen(x[i]));
}

}  // namespace

TESSERA_TABLE_DEFINE(Bias, bias, column_sums<T>, add<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
