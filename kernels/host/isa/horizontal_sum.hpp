// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums over a register and over a row, and the square root that norms take of them. For host/isa only; internal
// linkage.

#include "kernels/host/isa/vec.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

inline float square_root(float x) { return __builtin_sqrtf(x); }
inline double square_root(double x) { return __builtin_sqrt(x); }

/// The sum of the lanes of a register, in order.
template <class T>
inline Acc<T> sum_of(const Vec<T>& v) {
  Acc<T> sum = v[0];
  for (int i = 1; i < vec_width<T>; ++i) sum += v[i];
  return sum;
}

/// Σ f(x[i]) in four registers: one would be bound by the latency of its additions.
template <class T, class F>
inline Acc<T> sum_of(const T* x, std::int64_t n, const F& f) {
  constexpr int w = vec_width<T>;
  Vec<T> sums[4] = {};
  std::int64_t i = 0;
  for (; i + 4 * w <= n; i += 4 * w) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) sums[j] += f(load<T>(x + i + j * w));
  }
  for (; i + w <= n; i += w) sums[0] += f(load<T>(x + i));
  const Vec<T> all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  Acc<T> sum = 0;
  for (int j = 0; j < w; ++j) sum += all[j];
  for (; i < n; ++i) sum += f(widen(x[i]));
  return sum;
}

}  // namespace
}  // namespace tessera::kernels::host::TESSERA_ISA
