#pragma once
// Outputs that are summed in fp32 and rounded once: gradients of type G, which is the type of the
// activations or fp32. Not for host/isa.

#include <cstdint>

#include "kernels/host/convert.hpp"
#include "runtime/base/dtype.hpp"

namespace tessera::kernels::host {

/// f(G{}) for a gradient of activations of type T: G is T, or fp32 beside a half; a bug for any other.
template <class T, class F>
void dispatch_gradient_dtype(DType dtype, const F& f) {
  if constexpr (is_half<T>) {
    if (dtype == DType::f32) return f(float{});
  }
  TESSERA_ASSERT(dtype == dtype_of<T>::value, "a gradient of %s of %s", name_of(dtype), name_of(dtype_of<T>::value));
  f(T{});
}

enum class PreviousValues : unsigned char { ignore, keep };

/// Calls f(begin, end, sums) for stretches of [0, n), in order: sums[0 … end - begin) become out[begin … end). They are
/// `out` itself, all at once, unless it is of halves: then floats on the stack, with the old values in them if those
/// are kept, rounded when f returns.
template <class G, class F>
void with_fp32_accumulator(G* out, std::int64_t n, PreviousValues old, const F& f) {
  if constexpr (is_half<G>) {
    constexpr std::int64_t stretch = 1024;
    alignas(64) float sums[stretch];
    for (std::int64_t begin = 0; begin < n; begin += stretch) {
      const std::int64_t end = begin + stretch < n ? begin + stretch : n;
      if (old == PreviousValues::keep) convert().widen(out + begin, sums, end - begin);
      f(begin, end, sums);
      convert().narrow(sums, out + begin, end - begin);
    }
  } else if (n > 0) {
    f(std::int64_t{0}, n, out);
  }
}

}  // namespace tessera::kernels::host
