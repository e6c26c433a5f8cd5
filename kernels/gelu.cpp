// GELU: shapes, threads, dispatch.
#include "kernels/gelu.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/gelu.hpp"
#include "kernels/host/parallel.hpp"

namespace tessera::kernels {

namespace {
constexpr std::int64_t grain = 4096;  // elements
}

void gelu_forward(const GeluForwardArgs& args, StreamView stream) {
  TESSERA_ASSERT(args.x && args.x.shape == args.y.shape, "x %s, y %s", args.x.shape.str().c_str(),
                 args.y.shape.str().c_str());
  if constexpr (cuda_built)
    if (is_on_cuda(args.x)) return cuda::gelu_forward(args, stream);
  host::dispatch_dtype(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = args.x.as<T>();
    T* y = args.y.as<T>();
    const auto& table = host::gelu<T>();
    host::parallel_ranges(args.x.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
      table.forward(x + begin, y + begin, end - begin);
    });
  });
}

void gelu_backward(const GeluBackwardArgs& args, StreamView stream) {
  TESSERA_ASSERT(args.x && args.x.shape == args.dy.shape && args.x.shape == args.dx.shape, "x %s, dy %s, dx %s",
                 args.x.shape.str().c_str(), args.dy.shape.str().c_str(), args.dx.shape.str().c_str());
  if constexpr (cuda_built)
    if (is_on_cuda(args.x)) return cuda::gelu_backward(args, stream);
  host::dispatch_dtype(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = args.x.as<T>();
    const T* dy = args.dy.as<T>();
    T* dx = args.dx.as<T>();
    const auto& table = host::gelu<T>();
    host::parallel_ranges(args.x.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
      table.backward(x + begin, dy + begin, dx + begin, end - begin);
    });
  });
}

}  // namespace tessera::kernels
