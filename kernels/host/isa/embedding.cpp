// Embedding rows: summed, and scattered back.
#include "kernels/host/embedding.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

template <class T>
void sum(const T* a, const T* b, T* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

template <class T>
void scatter(const std::int32_t* ids, std::int64_t period, const T* dy, std::int64_t rows, std::int64_t channels,
             std::int64_t columns, T* table) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t index = ids ? ids[row] : row % period;
    const T* from = dy + row * channels;
    T* to = table + index * channels;
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) to[c] += from[c];
  }
}

}  // namespace

const Embedding<float> embedding_f32 = {sum<float>, scatter<float>};
const Embedding<double> embedding_f64 = {sum<double>, scatter<double>};

}  // namespace tessera::kernels::host::TESSERA_ISA
