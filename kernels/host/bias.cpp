// SPDX-License-Identifier: Apache-2.0
// Column sums and addition. Threads split the columns, so their number changes no bit.
#include "kernels/bias.hpp"

#include "kernels/host/bias.hpp"
#include "kernels/host/fp32_accumulator.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/row_stride.hpp"

namespace tessera::kernels::host {

void bias_backward(const BiasBackwardArgs& args) {
  const std::int64_t rows = args.dy.shape[0], columns = args.dy.shape[1], stride = row_stride(args.dy, args.stride);
  dispatch_dtype(args.dy.dtype, [&]<class T>(T) {
    const T* dy = args.dy.as<T>();
    const auto& table = bias<T>();
    dispatch_gradient_dtype<T>(args.dbias.dtype, [&](auto zero_gradient) {
      auto* const dbias = args.dbias.as<decltype(zero_gradient)>();
      parallel_ranges(columns, 64, [&](std::int64_t first, std::int64_t last) {
        with_fp32_accumulator(dbias + first, last - first,
                              args.accumulate ? PreviousValues::keep : PreviousValues::ignore,
                              [&](std::int64_t begin, std::int64_t end, auto* sums) {
                                table.column_sums(dy + first + begin, rows, stride, end - begin, sums, args.accumulate);
                              });
      });
    });
  });
}

void add(const AddArgs& args) {
  dispatch_dtype(args.x.dtype,
                 [&]<class T>(T) { parallel_elements(args.x.numel(), bias<T>().add, args.x.as<T>(), args.y.as<T>()); });
}

}  // namespace tessera::kernels::host
