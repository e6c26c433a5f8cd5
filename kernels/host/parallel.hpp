#pragma once
// Ranges over this rank's threads by a fixed rule, and the choice of the element type. Not for host/isa sources.

#include <cstdint>

#include "kernels/threads.hpp"
#include "runtime/base/dtype.hpp"

namespace tessera::kernels::host {

/// Calls f(part) for part in [0, parts): each once, on any thread. f must not throw. Parts are
/// dealt to threads in contiguous runs.
template <class F>
void parallel_parts(std::int64_t parts, const F& f) {
#ifdef _OPENMP
  // Always the same team: libgomp ends and starts threads when the size of a team changes.
  if (const int team = threads(); team > 1 && parts > 1) {
#pragma omp parallel for num_threads(team) schedule(static)
    for (std::int64_t part = 0; part < parts; ++part) f(part);
    return;
  }
#endif
  for (std::int64_t part = 0; part < parts; ++part) f(part);
}

/// Cuts [0, n) into one contiguous range per thread, each a multiple of `grain` long but the last, and calls f(begin,
/// end) for those that are not empty. For work whose result does not depend on the cut.
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

/// f(float{}), f(double{}), f(bf16{}) or f(f16{}), by the type of a tensor; a bug for any other.
template <class F>
void dispatch_dtype(DType dtype, const F& f) {
  if (dtype == DType::bf16) return f(bf16{});
  if (dtype == DType::f16) return f(f16{});
  if (dtype == DType::f32) return f(float{});
  TESSERA_ASSERT(dtype == DType::f64, "no kernel for %s", name_of(dtype));
  f(double{});
}

/// f(float{}) or f(double{}), by the type of a tensor; a bug for any other.
template <class F>
void dispatch_float(DType dtype, const F& f) {
  if (dtype == DType::f32) return f(float{});
  TESSERA_ASSERT(dtype == DType::f64, "no kernel for %s", name_of(dtype));
  f(double{});
}

}  // namespace tessera::kernels::host
