// SPDX-License-Identifier: Apache-2.0
#pragma once
// Table of the row operations of mixtures of experts; one thread.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

/// Limit of a row of probabilities, which backward keeps on the stack.
inline constexpr std::int64_t max_experts = 4096;

template <class T>
struct Moe {
  void (*softmax)(const Acc<T>* x, Acc<T>* y, std::int64_t n);  // y may be x
  /// y = scale·x, or y += scale·x; `next` as in Embedding.
  void (*scale)(const T* x, Acc<T> scale, Acc<T>* y, std::int64_t n, bool add, const T* next);
  void (*multiply)(T* x, Acc<T> scale, std::int64_t n);  // x *= scale
  Acc<T> (*dot)(const T* a, const T* b, std::int64_t n);
  /// dlogits = p·(dp - Σ dp·p); dlogits may be p, never dp.
  void (*softmax_backward)(const Acc<T>* p, const Acc<T>* dp, T* dlogits, std::int64_t n);
};
TESSERA_TABLE(Moe, moe)

}  // namespace tessera::kernels::host
