// SwiGLU: shapes, threads, dispatch.
#include "kernels/swiglu.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/host/swiglu.hpp"

namespace tessera::kernels {

namespace {
constexpr std::int64_t grain = 4096;  // elements
}

void swiglu_forward(const SwigluForwardArgs& args, StreamView stream) {
  TESSERA_ASSERT(args.gate.shape == args.up.shape && args.gate.shape == args.y.shape, "gate %s, up %s, y %s",
                 args.gate.shape.str().c_str(), args.up.shape.str().c_str(), args.y.shape.str().c_str());
  if constexpr (cuda_built)
    if (is_on_cuda(args.gate)) return cuda::swiglu_forward(args, stream);
  host::dispatch_dtype(args.gate.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T *gate = args.gate.as<T>(), *up = args.up.as<T>();
    T* y = args.y.as<T>();
    const auto& table = host::swiglu<T>();
    host::parallel_ranges(args.gate.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
      table.forward(gate + begin, up + begin, y + begin, end - begin);
    });
  });
}

void swiglu_backward(const SwigluBackwardArgs& args, StreamView stream) {
  const Shape& shape = args.gate.shape;
  TESSERA_ASSERT(
      args.up.shape == shape && args.dy.shape == shape && args.dgate.shape == shape && args.dup.shape == shape,
      "gate %s, dy %s", shape.str().c_str(), args.dy.shape.str().c_str());
  TESSERA_ASSERT(args.dgate.data != args.dup.data || shape.numel() == 0);
  if constexpr (cuda_built)
    if (is_on_cuda(args.gate)) return cuda::swiglu_backward(args, stream);
  host::dispatch_dtype(args.gate.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T *gate = args.gate.as<T>(), *up = args.up.as<T>(), *dy = args.dy.as<T>();
    T *dgate = args.dgate.as<T>(), *dup = args.dup.as<T>();
    const auto& table = host::swiglu<T>();
    host::parallel_ranges(args.gate.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
      table.backward(gate + begin, up + begin, dy + begin, dgate + begin, dup + begin, end - begin);
    });
  });
}

}  // namespace tessera::kernels
