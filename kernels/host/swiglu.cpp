// SwiGLU over this rank's threads.
#include "kernels/swiglu.hpp"

#include "kernels/host/ops.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/host/swiglu.hpp"

namespace tessera::kernels::host {
namespace {

constexpr std::int64_t grain = 4096;  // elements

}  // namespace

void swiglu_forward(const SwigluForwardArgs& args) {
  dispatch_dtype(args.gate.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T *gate = args.gate.as<T>(), *up = args.up.as<T>();
    T* y = args.y.as<T>();
    const auto& table = swiglu<T>();
    parallel_ranges(args.gate.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
      table.forward(gate + begin, up + begin, y + begin, end - begin);
    });
  });
}

void swiglu_backward(const SwigluBackwardArgs& args) {
  dispatch_dtype(args.gate.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T *gate = args.gate.as<T>(), *up = args.up.as<T>(), *dy = args.dy.as<T>();
    T *dgate = args.dgate.as<T>(), *dup = args.dup.as<T>();
    const auto& table = swiglu<T>();
    parallel_ranges(args.gate.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
      table.backward(gate + begin, up + begin, dy + begin, dgate + begin, dup + begin, end - begin);
    });
  });
}

}  // namespace tessera::kernels::host
