// SPDX-License-Identifier: Apache-2.0
// Rows of routers and of experts: softmax, scaling, dot products.
#include "kernels/host/moe.hpp"

#include "kernels/host/isa/horizontal_sum.hpp"
#include "kernels/host/isa/math.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

template <class T>  // float or double here
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
void scale(const T* x, Acc<T> factor, Acc<T>* y, std::int64_t n, bool add, const T* next) {
  if (add) {
    for_each_register<T>(n, [=](std::int64_t i, const auto& part) {
      prefetch_to_l2(next + i);
      part.store(y + i, madd(all<Vec<T>>(factor), part.load(x + i), part.load(y + i)));
    });
  } else {
    for_each_register<T>(n, [=](std::int64_t i, const auto& part) {
      prefetch_to_l2(next + i);
      part.store(y + i, factor * part.load(x + i));
    });
  }
}

template <class T>
void multiply(T* x, Acc<T> factor, std::int64_t n) {
  for_each_register<T>(n, [=](std::int64_t i, const auto& part) { part.store(x + i, factor * part.load(x + i)); });
}

template <class T>
Acc<T> dot(const T* a, const T* b, std::int64_t n) {
  Vec<T> sums{};
  for_each_register<T>(
      n, [=, &sums](std::int64_t i, const auto& part) { sums = madd(part.load(a + i), part.load(b + i), sums); });
  return sum_of<T>(sums);
}

template <class T>
void softmax_backward(const Acc<T>* p, const Acc<T>* dp, T* dlogits, std::int64_t n) {
  const Acc<T> mean = dot(p, dp, n);
  for_each_register<T>(n, [=](std::int64_t i, const auto& part) {
    part.store(dlogits + i, part.load(p + i) * (part.load(dp + i) - mean));
  });
}

}  // namespace

TESSERA_TABLE_DEFINE(Moe, moe, softmax<Acc<T>>, scale<T>, multiply<T>, dot<T>, softmax_backward<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
