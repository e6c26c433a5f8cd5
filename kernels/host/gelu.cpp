// GELU over this rank's threads.
#include "kernels/gelu.hpp"

#include "kernels/host/gelu.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/host/parallel.hpp"

namespace tessera::kernels::host {
namespace {

constexpr std::int64_t grain = 4096;  // elements

}  // namespace

void gelu_forward(const GeluForwardArgs& args) {
  dispatch_dtype(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = args.x.as<T>();
    T* y = args.y.as<T>();
    const auto& table = gelu<T>();
    parallel_ranges(args.x.numel(), grain,
                    [&](std::int64_t begin, std::int64_t end) { table.forward(x + begin, y + begin, end - begin); });
  });
}

void gelu_backward(const GeluBackwardArgs& args) {
  dispatch_dtype(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = args.x.as<T>();
    const T* dy = args.dy.as<T>();
    T* dx = args.dx.as<T>();
    const auto& table = gelu<T>();
    parallel_ranges(args.x.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
      table.backward(x + begin, dy + begin, dx + begin, end - begin);
    });
  });
}

}  // namespace tessera::kernels::host
