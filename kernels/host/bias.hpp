// SPDX-License-Identifier: Apache-2.0
#pragma once
// Table of column sums and of element-wise addition.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

template <class T>
struct Bias {
  /// out[c] = (from_out ? out[c] : 0) + Σ over rows of x[row·stride + c], rows in order, c in [0, columns).
  void (*column_sums)(const T* x, std::int64_t rows, std::int64_t stride, std::int64_t columns, Acc<T>* out,
                      bool from_out);
  void (*add)(const T* x, T* y, std::int64_t n);  // y += x; y may be x
};
TESSERA_TABLE(Bias, bias)

}  // namespace tessera::kernels::host
