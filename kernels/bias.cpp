// Column sums and addition: shapes, threads, dispatch. Threads split the columns, so their number changes no bit.
#include "kernels/bias.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/bias.hpp"
#include "kernels/host/fp32_accumulator.hpp"
#include "kernels/host/parallel.hpp"

namespace tessera::kernels {

void bias_backward(const BiasBackwardArgs& args, StreamView stream) {
  TESSERA_ASSERT(args.dy.shape.rank() == 2 && args.dbias.numel() == args.dy.shape[1], "dy %s, dbias %s",
                 args.dy.shape.str().c_str(), args.dbias.shape.str().c_str());
  const std::int64_t rows = args.dy.shape[0], columns = args.dy.shape[1],
                     stride = args.stride > 0 ? args.stride : columns;
  if constexpr (cuda_built)
    if (is_on_cuda(args.dy)) return cuda::bias_backward(args, stream);
  host::dispatch_dtype(args.dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* dy = args.dy.as<T>();
    const auto& table = host::bias<T>();
    host::dispatch_gradient_dtype<T>(args.dbias.dtype, [&](auto zero_gradient) {
      auto* const dbias = args.dbias.as<decltype(zero_gradient)>();
      host::parallel_ranges(columns, 64, [&](std::int64_t first, std::int64_t last) {
        host::with_fp32_accumulator(
            dbias + first, last - first, args.accumulate ? host::PreviousValues::keep : host::PreviousValues::ignore,
            [&](std::int64_t begin, std::int64_t end, auto* sums) {
              table.column_sums(dy + first + begin, rows, stride, end - begin, sums, args.accumulate);
            });
      });
    });
  });
}

void add(const AddArgs& args, StreamView stream) {
  TESSERA_ASSERT(args.x && args.x.numel() == args.y.numel(), "x %s, y %s", args.x.shape.str().c_str(),
                 args.y.shape.str().c_str());
  if constexpr (cuda_built)
    if (is_on_cuda(args.x)) return cuda::add(args, stream);
  host::dispatch_dtype(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = args.x.as<T>();
    T* y = args.y.as<T>();
    const auto& table = host::bias<T>();
    host::parallel_ranges(args.x.numel(), 8192,
                          [&](std::int64_t begin, std::int64_t end) { table.add(x + begin, y + begin, end - begin); });
  });
}

}  // namespace tessera::kernels
