// SPDX-License-Identifier: Apache-2.0
#pragma once
// Table of sums, sums of squares and fill; one thread.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

struct Reduce {
  void (*sum2)(const float* a, const float* b, float* out, std::int64_t n);  // a + b
  void (*sum4)(const float* a, const float* b, const float* c, const float* d, float* out,
               std::int64_t n);  // (a+b) + (c+d)
  void (*squares)(const float* x, std::int64_t blocks,
                  double* out);  // Σ x² of each 128 elements, in the order of reduce.hpp
  void (*fill)(float* x, std::int64_t n, float value);
};
TESSERA_TABLE_PLAIN(Reduce, reduce)

}  // namespace tessera::kernels::host
