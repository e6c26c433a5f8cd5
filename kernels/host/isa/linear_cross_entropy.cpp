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
void cap_logits(T* x, std::int64_t n, T cap) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) x[i] = cap * tanh(x[i] / cap);
}

template <class T>
double sum_exponentials(const T* x, std::int64_t n, T max) {
  constexpr std::int64_t segment = 256;
  double sum = 0;
  for (std::int64_t first = 0; first < n; first += segment) {
    const std::int64_t last = first + segment < n ? first + segment : n;
    T part = 0;
#pragma omp simd reduction(+ : part)
    for (std::int64_t i = first; i < last; ++i) part += exp(x[i] - max);
    sum += static_cast<double>(part);
  }
  return sum;
}

template <class T>
void capped_gradient(T* x, std::int64_t n, const typename LinearCrossEntropy<T>::Capped& of) {
  const T max = of.max, factor = of.factor, inverse = of.inverse_cap;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const T tangent = x[i] * inverse;
    x[i] = factor * exp(x[i] - max) * (T(1) - tangent * tangent);
  }
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

template <class T>
static constexpr LinearCrossEntropy<T> cross_entropy_row_of = {
    largest<T>, find<T>, exponentiate<T>, scale<T>, cap_logits<T>, sum_exponentials<T>, capped_gradient<T>};
const LinearCrossEntropy<float> cross_entropy_row_f32 = cross_entropy_row_of<float>;
const LinearCrossEntropy<double> cross_entropy_row_f64 = cross_entropy_row_of<double>;

}  // namespace tessera::kernels::host::TESSERA_ISA
