// SPDX-License-Identifier: Apache-2.0
#include "kernels/dropout.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"

namespace tessera::kernels {

DropoutScalars dropout_scalars(double p) {
  const double threshold = std::min(std::round(p * 0x1p16), 0x1p16 - 1);
  return {static_cast<std::uint16_t>(threshold), 0x1p16 / (0x1p16 - threshold)};
}

void dropout(const DropoutArgs& args, StreamView stream) {
  TESSERA_ASSERT(args.x && args.x.shape == args.y.shape && args.x.shape.rank() == 2 && args.x.dtype == args.y.dtype,
                 "x %s, y %s", args.x.shape.str().c_str(), args.y.shape.str().c_str());
  TESSERA_ASSERT(args.p >= 0 && args.p < 1 && args.first_row >= 0, "p %g, row %ld", args.p, args.first_row);
  TESSERA_ASSERT(args.first_column % dropout_columns == 0 &&
                     (args.columns == 0 || args.first_column + args.x.shape[1] <= args.columns),
                 "columns from %ld on of %ld", args.first_column, args.columns);
  TESSERA_DISPATCH(args.x, dropout, args);
}

}  // namespace tessera::kernels
