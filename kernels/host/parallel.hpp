// SPDX-License-Identifier: Apache-2.0
#pragma once
// Splits work over this rank's threads by a fixed rule, and selects the element type. Not for host/isa sources.

#include <cstdint>

#include "kernels/threads.hpp"
#include "runtime/base/dtype.hpp"

namespace tessera::kernels::host {

/// Calls f(part) for each part in [0, parts), once, on any thread; f must not throw. Threads get contiguous runs of
/// parts.
template <class F>
void parallel_parts(std::int64_t parts, const F& f) {
#ifdef _OPENMP
  // Always the same number of threads: libgomp ends and starts threads when it changes.
  if (const int num_threads = threads(); num_threads > 1 && parts > 1) {
#pragma omp parallel for num_threads(num_threads) schedule(static)
    for (std::int64_t part = 0; part < parts; ++part) f(part);
    return;
  }
#endif
  for (std::int64_t part = 0; part < parts; ++part) f(part);
}

/// Splits [0, n) into one contiguous range per thread, multiples of `grain` except for the last, and calls f(begin,
/// end) for those that are not empty. For work whose result does not depend on the split.
template <class F>
void parallel_ranges(std::int64_t n, std::int64_t grain, const F& f) {
  const std::int64_t grains = (n + grain - 1) / grain;
  const std::int64_t parts = grains < threads() ? grains : threads();
  parallel_parts(parts, [&](std::int64_t part) {
    const std::int64_t begin = grains * part / parts * grain;
    const std::int64_t end = part + 1 == parts ? n : grains * (part + 1) / parts * grain;
    if (begin < end) f(begin, end);
  });
}

/// Calls f(array + first …, count) on ranges of n elements of the arrays.
template <class F, class... T>
void parallel_elements(std::int64_t n, const F& f, T*... arrays) {
  constexpr std::int64_t grain = 4096;
  parallel_ranges(n, grain, [&](std::int64_t begin, std::int64_t end) { f((arrays + begin)..., end - begin); });
}

/// Calls f with a value of the C++ type of `dtype`: float, double, bf16 or f16. Asserts on other dtypes.
template <class F>
void dispatch_dtype(DType dtype, const F& f) {
  if (dtype == DType::bf16) return f(bf16{});
  if (dtype == DType::f16) return f(f16{});
  if (dtype == DType::f32) return f(float{});
  TESSERA_ASSERT(dtype == DType::f64, "no kernel for %s", name_of(dtype));
  f(double{});
}

/// Calls f(float{}) or f(double{}). Asserts on other dtypes.
template <class F>
void dispatch_float(DType dtype, const F& f) {
  if (dtype == DType::f32) return f(float{});
  TESSERA_ASSERT(dtype == DType::f64, "no kernel for %s", name_of(dtype));
  f(double{});
}

}  // namespace tessera::kernels::host
