#pragma once
// The sweeps of linear_cross_entropy over one row of a chunk of logits.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

template <class T>
struct LinearCrossEntropy {
  /// The maximum of x (n); NaNs do not count, and -inf if nothing else is there.
  T (*largest)(const T* x, std::int64_t n);
  /// The lowest index of `value` in x (n); n if it is not there.
  std::int64_t (*find)(const T* x, std::int64_t n, T value);
  /// x (n) becomes exp(x - max); returns the sum, NaN if an x is NaN.
  double (*exponentiate)(T* x, std::int64_t n, T max);
  /// x (n) *= factor.
  void (*scale)(T* x, std::int64_t n, T factor);
};
TESSERA_TABLE(LinearCrossEntropy, cross_entropy_row)

}  // namespace tessera::kernels::host
