// SPDX-License-Identifier: Apache-2.0
// Dropout over this rank's threads, by rows.
#include "kernels/dropout.hpp"

#include "kernels/host/dropout.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/host/parallel.hpp"

namespace tessera::kernels::host {

void dropout(const DropoutArgs& args) {
  const std::int64_t rows = args.x.shape[0], columns = args.x.shape[1];
  const DropoutScalars scalars = dropout_scalars(args.p);
  const DropoutCounters counters = dropout_counters(args);
  const DropoutMask mask{args.key, scalars.threshold, scalars.scale};
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    parallel_ranges(rows, 4, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n)
        dropout<T>().row(args.x.as<T>() + n * columns, args.y.as<T>() + n * columns, columns,
                         static_cast<std::uint64_t>(counters.first + n * counters.step), mask, args.accumulate);
    });
  });
}

}  // namespace tessera::kernels::host
