// SPDX-License-Identifier: Apache-2.0
// Sums in a documented order. No fused operations: the same bits on every instruction set.
#include "kernels/host/reduce.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

// `out` may be any of the inputs; they are read at an index before it is written.
void sum2(const float* a, const float* b, float* out, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

void sum4(const float* a, const float* b, const float* c, const float* d, float* out, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = (a[i] + b[i]) + (c[i] + d[i]);
}

void squares(const float* x, std::int64_t blocks, double* out) {
  for (std::int64_t block = 0; block < blocks; ++block) {
    double lanes[16] = {};
    for (int i = 0; i < 128; i += 16) {
#pragma omp simd
      for (int j = 0; j < 16; ++j) {
        const double v = x[block * 128 + i + j];
        lanes[j] += v * v;  // the product is exact: fused or not, the result is the same
      }
    }
    for (int width = 8; width > 0; width /= 2)
      for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
    out[block] = lanes[0];
  }
}

void fill(float* x, std::int64_t n, float value) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) x[i] = value;
}

}  // namespace

const Reduce reduce_table = {sum2, sum4, squares, fill};

}  // namespace tessera::kernels::host::TESSERA_ISA
