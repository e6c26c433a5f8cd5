// SPDX-License-Identifier: Apache-2.0
// Passes over a row of logits: maximum, exponentials and their sum, scaling. Segments are summed in the element type,
// and the segments in double, so that a vocabulary of 10^5 loses no precision.

#include "kernels/host/linear_cross_entropy.hpp"
#include "kernels/host/isa/math.hpp"
#include "kernels/host/isa/vec.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

template <class T>
T largest(const T* x, std::int64_t n) {
  constexpr int w = vec_width<T>;
  T result = -static_cast<T>(__builtin_inf());
  std::int64_t i = 0;
  if (n >= 2 * w) {
    Vec<T> even = load<T>(x), odd = load<T>(x + w);
    for (i = 2 * w; i + 2 * w <= n; i += 2 * w) {
      const Vec<T> a = load<T>(x + i), b = load<T>(x + i + w);
      even = a > even ? a : even;
      odd = b > odd ? b : odd;
    }
    even = odd > even ? odd : even;
    for (int l = 0; l < w; ++l) result = even[l] > result ? even[l] : result;
  }
  for (; i < n; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

template <class T>
double exponentiate(T* x, std::int64_t n, T max) {
  constexpr std::int64_t segment = 256;
  double sum = 0;
  for (std::int64_t first = 0; first < n; first += segment) {
    const std::int64_t last = first + segment < n ? first + segment : n;
    T part = 0;
#pragma omp simd reduction(+ : part)
    for (std::int64_t i = first; i < last; ++i) {
      x[i] = exp(x[i] - max);
      part += x[i];
    }
    sum += static_cast<double>(part);
  }
  return sum;
}

template <class T>
void scale(T* x, std::int64_t n, T factor) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
}

template <class T>
std::int64_t find(const T* x, std::int64_t n, T value) {
  for (std::int64_t i = 0; i < n; ++i) {
    if (x[i] == value) return i;
  }
  return n;
}

}  // namespace

const LinearCrossEntropy<float> cross_entropy_row_f32 = {largest<float>, find<float>, exponentiate<float>,
                                                         scale<float>};
const LinearCrossEntropy<double> cross_entropy_row_f64 = {largest<double>, find<double>, exponentiate<double>,
                                                          scale<double>};

}  // namespace tessera::kernels::host::TESSERA_ISA
