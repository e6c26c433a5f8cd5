// SPDX-License-Identifier: Apache-2.0
// Embedding rows: sum, and scatter-add.
#include "kernels/host/embedding.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

template <class T>
void sum(const T* a, const T* b, T* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) put(y[i], widen(a[i]) + widen(b[i]));
}

template <class T>
void scatter(const std::int32_t* ids, std::int64_t period, const T* dy, std::int64_t rows, std::int64_t channels,
             std::int64_t columns, Acc<T>* table) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t index = ids ? ids[row] : row % period;
    const T* from = dy + row * channels;
    Acc<T>* to = table + index * channels;
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) to[c] += widen(from[c]);
  }
}

}  // namespace

TESSERA_TABLE_DEFINE(Embedding, embedding, sum<T>, scatter<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
