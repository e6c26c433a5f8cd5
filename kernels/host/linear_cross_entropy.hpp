// SPDX-License-Identifier: Apache-2.0
#pragma once
// Table of the passes of linear_cross_entropy over one row of a chunk of logits.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

template <class T>
struct LinearCrossEntropy {
  /// The maximum of x (n), ignoring NaNs; -inf if there is none.
  T (*largest)(const T* x, std::int64_t n);
  /// The lowest index of `value` in x (n); n if absent.
  std::int64_t (*find)(const T* x, std::int64_t n, T value);
  /// x (n) = exp(x - max); returns the sum, NaN if an x is NaN.
  double (*exponentiate)(T* x, std::int64_t n, T max);
  /// x (n) *= factor.
  void (*scale)(T* x, std::int64_t n, T factor);
  /// x (n) = cap·tanh(x / cap).
  void (*soft_cap)(T* x, std::int64_t n, T cap);
  /// What exponentiate returns; x stays.
  double (*sum_exponentials)(const T* x, std::int64_t n, T max);
  struct Capped {
    T max, factor, inverse_cap;
  };
  /// x (n) = factor·exp(x - max)·(1 - (x / cap)²).
  void (*capped_gradient)(T* x, std::int64_t n, const Capped& of);
};
TESSERA_TABLE(LinearCrossEntropy, cross_entropy_row)

}  // namespace tessera::kernels::host
