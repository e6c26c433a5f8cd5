// Rows of routers and of experts: softmax, scaling, dot products.
#include "kernels/host/moe.hpp"

#include "kernels/host/isa/math.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

template <class T>
void softmax(const T* x, T* y, std::int64_t n) {
  T max = x[0];
  for (std::int64_t i = 1; i < n; ++i) max = x[i] > max ? x[i] : max;
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = exp(x[i] - max);
    sum += y[i];
  }
  const T inverse = T(1) / sum;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] *= inverse;
}

template <class T>
void scale(const T* x, T factor, T* y, std::int64_t n, bool add) {
  if (add) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) y[i] = madd(factor, x[i], y[i]);
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) y[i] = factor * x[i];
  }
}

template <class T>
T dot(const T* a, const T* b, std::int64_t n) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum = madd(a[i], b[i], sum);
  return sum;
}

template <class T>
void softmax_backward(const T* p, const T* dp, T* dlogits, std::int64_t n) {
  const T mean = dot(p, dp, n);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) dlogits[i] = p[i] * (dp[i] - mean);
}

}  // namespace

const Moe<float> moe_f32 = {softmax<float>, scale<float>, dot<float>, softmax_backward<float>};
const Moe<double> moe_f64 = {softmax<double>, scale<double>, dot<double>, softmax_backward<double>};

}  // namespace tessera::kernels::host::TESSERA_ISA
