// SPDX-License-Identifier: Apache-2.0
#pragma once
// Outputs that are accumulated in fp32 and rounded once: gradients of type G, the type of the activations or fp32. Not
// for host/isa.

#include <cstdint>

#include "kernels/host/convert.hpp"
#include "runtime/base/dtype.hpp"

namespace tessera::kernels::host {

/// Calls f(G{}) for a gradient of activations of type T: G is T, or fp32 if T is 16-bit. Asserts on other dtypes.
template <class T, class F>
void dispatch_gradient_dtype(DType dtype, const F& f) {
  if constexpr (is_half<T>) {
    if (dtype == DType::f32) return f(float{});
  }
  TESSERA_ASSERT(dtype == dtype_of<T>::value, "a gradient of %s of %s", name_of(dtype), name_of(dtype_of<T>::value));
  f(T{});
}

enum class PreviousValues : unsigned char { ignore, keep };

/// Calls f(begin, end, sums) for consecutive ranges of [0, n), where sums[0 … end - begin) become out[begin … end). For
/// a 16-bit G they are fp32 on the stack, with the previous values in them if these are kept, and are rounded when f
/// returns; otherwise they are `out` itself, in one range.
template <class G, class F>
void with_fp32_accumulator(G* out, std::int64_t n, PreviousValues old, const F& f) {
  if constexpr (is_half<G>) {
    constexpr std::int64_t block = 1024;
    alignas(64) float sums[block];
    for (std::int64_t begin = 0; begin < n; begin += block) {
      const std::int64_t end = begin + block < n ? begin + block : n;
      if (old == PreviousValues::keep) convert().widen(out + begin, sums, end - begin);
      f(begin, end, sums);
      convert().narrow(sums, out + begin, end - begin);
    }
  } else if (n > 0) {
    f(std::int64_t{0}, n, out);
  }
}

}  // namespace tessera::kernels::host
