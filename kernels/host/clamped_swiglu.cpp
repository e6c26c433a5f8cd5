// SPDX-License-Identifier: Apache-2.0
// The clamped SwiGLU over this rank's threads, by elements of y.
#include "kernels/host/clamped_swiglu.hpp"

#include "kernels/host/clamped_swiglu_table.hpp"
#include "kernels/host/parallel.hpp"

namespace tessera::kernels::host {

static constexpr std::int64_t clamped_grain = 4096;  // elements of y

void clamped_swiglu_forward(const ClampedSwigluForwardArgs& args) {
  dispatch_dtype(args.y.dtype, [&]<class T>(T) {
    const T* const x = args.gate_up.as<T>();
    T* const y = args.y.as<T>();
    const auto alpha = static_cast<Acc<T>>(args.limits.alpha), limit = static_cast<Acc<T>>(args.limits.limit);
    parallel_ranges(args.y.numel(), clamped_grain, [&](std::int64_t begin, std::int64_t end) {
      clamped_swiglu<T>().forward(x + 2 * begin, y + begin, end - begin, alpha, limit);
    });
  });
}

void clamped_swiglu_backward(const ClampedSwigluBackwardArgs& args) {
  dispatch_dtype(args.dy.dtype, [&]<class T>(T) {
    const T *const x = args.gate_up.as<T>(), *const dy = args.dy.as<T>();
    T* const dx = args.dgate_up.as<T>();
    const auto alpha = static_cast<Acc<T>>(args.limits.alpha), limit = static_cast<Acc<T>>(args.limits.limit);
    parallel_ranges(args.dy.numel(), clamped_grain, [&](std::int64_t begin, std::int64_t end) {
      clamped_swiglu<T>().backward(x + 2 * begin, dy + begin, dx + 2 * begin, end - begin, alpha, limit);
    });
  });
}

}  // namespace tessera::kernels::host
